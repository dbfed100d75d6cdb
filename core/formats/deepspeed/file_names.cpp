#include "formats/deepspeed/file_names.h"

#include <algorithm>
#include <tuple>

#include "base/numbers.h"
#include "base/regular_expression.h"
#include "formats/open_files.h"

namespace shardscope::deepspeed {

namespace {

constexpr uint32_t kMostRank = 1'000'000;
constexpr uint64_t kTagBytes = 4096;

// How the engine builds the names: runtime/engine.py _get_ckpt_name, _get_zero_ckpt_name,
// _get_expert_ckpt_name, _get_optimizer_ckpt_name; runtime/pipe/module.py ckpt_layer_path. Groups: see
// `numbers`.
struct NameShape {
    RegularExpression name;
    FileName::Kind kind;
    // What the groups from the second on are; the first is the prefix of bf16.
    std::vector<uint32_t FileName::*> numbers;
};

const std::vector<NameShape>& nameShapes() {
    static const std::vector<NameShape> shapes = [] {
        const auto shape = [](std::string_view pattern, FileName::Kind kind,
                              std::vector<uint32_t FileName::*> numbers) {
            return NameShape{RegularExpression::parse(pattern).value(), kind, std::move(numbers)};
        };
        using Kind = FileName::Kind;
        return std::vector<NameShape>{
            shape(R"(()mp_rank_(\d+)_model_states\.pt)", Kind::model, {&FileName::mp}),
            shape(R"((bf16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_model_states\.pt)", Kind::zeroModel,
                  {&FileName::dp, &FileName::mp}),
            shape(R"((bf16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt)", Kind::zeroOptimizer,
                  {&FileName::dp, &FileName::mp}),
            shape(R"(()expp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt)", Kind::expertOptimizer,
                  {&FileName::dp, &FileName::mp}),
            shape(R"(()layer_(\d+)(?:-model_(\d+))?-model_states\.pt)", Kind::layer,
                  {&FileName::layer, &FileName::mp}),
            shape(R"(()layer_(\d+)_expert_(\d+)_mp_rank_(\d+)_model_states\.pt)", Kind::expert,
                  {&FileName::layer, &FileName::expert, &FileName::mp}),
            shape(R"(()expert_(\d+)_mp_rank_(\d+)_model_states\.pt)", Kind::expert,
                  {&FileName::expert, &FileName::mp}),
        };
    }();
    return shapes;
}

bool listTag(const Source& source, const std::string& prefix, Tag& tag) {
    std::vector<DirectoryEntry> listed;
    if (!prefix.empty()) {
        auto below = source.directory->list(std::string_view(prefix).substr(0, prefix.size() - 1));
        if (!below.ok()) return false;
        listed = std::move(below).value();
        std::ranges::sort(listed, {}, &DirectoryEntry::name);
    }
    bool states = false, partitions = false, merged = false;
    for (const DirectoryEntry& entry : prefix.empty() ? source.entries : listed) {
        const auto about =
            entry.kind == DirectoryEntry::Kind::file ? parseFileName(entry.name) : std::nullopt;
        if (about) {
            tag.files.push_back({*about, prefix + entry.name, entry.size});
            states = states || about->kind != FileName::Kind::layer;
            partitions = partitions || about->kind == FileName::Kind::zeroOptimizer;
        } else {
            tag.others.push_back({prefix + entry.name, entry.kind, entry.size});
        }
        merged = merged || (entry.name == "zero" && entry.kind == DirectoryEntry::Kind::directory);
    }
    // The merged parameters, which may be beside what they were made of.
    tag.universal =
        merged && !partitions && (states || source.directory->stat(prefix + "zero/optimizer_state.pt").ok());
    // As numbers: rank 10 after rank 9, and layers beyond 99.
    std::ranges::stable_sort(tag.files, {}, [](const TagFile& file) {
        const FileName& about = file.about;
        return std::tuple(about.kind, about.mp, about.layer, about.expert, about.dp);
    });
    tag.prefix = prefix;
    return states || tag.universal;
}

}  // namespace

std::optional<FileName> parseFileName(std::string_view name) {
    std::vector<std::string_view> groups;
    for (const NameShape& shape : nameShapes()) {
        if (!shape.name.matchWhole(name, groups)) continue;
        FileName out;
        out.kind = shape.kind;
        out.bf16 = !groups[1].empty();
        for (size_t i = 0; i < shape.numbers.size(); ++i) {
            const std::string_view digits = groups[i + 2];
            if (digits.empty()) continue;  // a layer without tensor parallelism
            const auto number = parseNumber<uint32_t>(digits, 0, kMostRank);
            if (!number) return std::nullopt;
            out.*shape.numbers[i] = *number;
        }
        return out;
    }
    return std::nullopt;
}

std::string trackedTag(const Directory& directory, const std::string& tracker) {
    std::string name = smallFile(directory, tracker, kTagBytes);
    while (!name.empty() && (name.back() == '\n' || name.back() == '\r'))
        name.pop_back();
    return checkRelativeName(name).ok() ? name : std::string();
}

std::optional<Tag> findTag(const Source& source) {
    if (!source.entry.empty()) return std::nullopt;
    Tag tag;
    if (listTag(source, "", tag)) return tag;
    for (const char* tracker : {"latest", "latest_universal"}) {
        const std::string name =
            source.hasFile(tracker) ? trackedTag(*source.directory, tracker) : std::string();
        Tag named;
        if (!name.empty() && listTag(source, name + "/", named)) return named;
    }
    // Without it the weights beside the tag would be taken for all of a step of transformers' Trainer.
    std::vector<Tag> found;
    for (const DirectoryEntry& entry : source.entries) {
        if (entry.kind != DirectoryEntry::Kind::directory || !entry.name.starts_with("global_step") ||
            !source.hasFile("trainer_state.json"))
            continue;
        Tag inside;
        inside.untracked = true;
        if (listTag(source, entry.name + "/", inside)) found.push_back(std::move(inside));
    }
    if (found.size() == 1) return std::move(found[0]);
    return std::nullopt;
}

}  // namespace shardscope::deepspeed

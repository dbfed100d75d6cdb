#include "formats/tensor_parallel/file_names.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/regular_expression.h"

namespace shardscope::tensor_parallel {

namespace {

constexpr uint32_t kMostRanks = 65'536, kMostStages = 4096;

// Groups of a name: the rank, the number of ranks (may be empty), and the stage where names have one.
struct NameRule {
    const char* writer;
    RegularExpression name;
    const char* missing;      // how the file of a rank, of a stage, is called
    bool aloneIsPart;         // one such file may be a part: nobody calls a whole model so
    const char* beside = "";  // ... if this file is there, too
    const char* directory = "";
    const char* mark = "";
};

const std::vector<NameRule>& nameRules() {
    static const std::vector<NameRule> rules = [] {
        const auto rule = [](const char* writer, const char* name, const char* missing, bool alone = false,
                             const char* beside = "") {
            return NameRule{writer, RegularExpression::parse(name).value(), missing, alone, beside};
        };
        return std::vector<NameRule>{
            rule("vLLM", R"(model-rank-(\d+)-part-\d+\.safetensors())", "model-rank-{}-part-0.safetensors",
                 true),
            rule("TensorRT-LLM", R"(rank(\d+)\.safetensors())", "rank{}.safetensors", true),
            rule("Meta", R"(consolidated\.(\d+)\.(?:pth|safetensors)())", "consolidated.{:02}.pth", true,
                 "params.json"),
            rule("DeepSeek", R"(model(\d+)-mp(\d+)\.safetensors)", "model{}-mp*.safetensors"),
            rule("-TP- files", R"(.*-TP-(\d+)\.safetensors())", "*-TP-{:03}.safetensors"),
            {"NxD", RegularExpression::parse(R"(dp_rank_0+_tp_rank_(\d+)()_pp_rank_(\d+)\.pt)").value(),
             "model/dp_rank_00_tp_rank_{:02}_pp_rank_{:02}.pt", true, "", "model", "done"},
        };
    }();
    return rules;
}

std::vector<DirectoryEntry> entriesOf(const Source& source, std::string_view directory) {
    if (directory.empty()) return source.entries;
    const auto is = [&](const DirectoryEntry& entry) {
        return entry.kind == DirectoryEntry::Kind::directory && entry.name == directory;
    };
    if (!std::ranges::any_of(source.entries, is)) return {};
    auto listed = source.directory->list(directory);
    if (!listed.ok()) return {};
    std::ranges::sort(*listed, {}, &DirectoryEntry::name);
    for (DirectoryEntry& entry : *listed)
        entry.name = joinPath(directory, entry.name);
    return *std::move(listed);
}

RankFiles filesOf(const Source& source, const NameRule& rule) {
    RankFiles out;
    struct Found {
        std::string name;
        uint32_t rank, stage;
    };
    std::vector<Found> found;
    std::vector<std::string_view> groups;
    for (const DirectoryEntry& entry : entriesOf(source, rule.directory)) {
        const std::string_view name = std::string_view(entry.name).substr(entry.name.rfind('/') + 1);
        if (entry.kind != DirectoryEntry::Kind::file || !rule.name.matchWhole(name, groups)) continue;
        const auto rank = parseNumber<uint32_t>(groups[1], 0, kMostRanks - 1);
        const auto world = parseNumber<uint32_t>(groups[2], 1, kMostRanks);
        const auto stage = groups.size() > 3 ? parseNumber<uint32_t>(groups[3], 0, kMostStages - 1) : 0u;
        if (!rank || !stage) continue;
        found.push_back({entry.name, *rank, *stage});
        out.world = std::max({out.world, *rank + 1, world.value_or(0)});
        out.stages = std::max(out.stages, *stage + 1);
    }
    const bool alone = rule.aloneIsPart && (*rule.beside == '\0' || source.hasFile(rule.beside));
    if (out.world < 2 && !(alone && out.world == 1)) return {};
    out.writer = rule.writer;
    out.mark = rule.mark;
    for (Found& file : found)
        out.files.push_back({std::move(file.name), file.stage * out.world + file.rank});
    for (const DirectoryEntry& entry : source.entries) {
        if (entry.kind == DirectoryEntry::Kind::file && entry.name.ends_with("-TP-common.safetensors"))
            out.files.push_back({entry.name, 0, true});
    }
    return out;
}

}  // namespace

std::string RankFiles::nameOf(uint32_t rank) const {
    for (const NameRule& rule : nameRules()) {
        if (std::string_view(rule.writer) == writer)
            return fmt::format(fmt::runtime(rule.missing), rank % world, rank / world);
    }
    return {};
}

RankFiles findRankFiles(const Source& source) {
    for (const NameRule& rule : nameRules()) {
        if (RankFiles found = filesOf(source, rule); *found.writer != '\0') return found;
    }
    return {};
}

}  // namespace shardscope::tensor_parallel

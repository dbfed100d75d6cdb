#include "formats/deepspeed/save.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/regular_expression.h"
#include "base/units.h"
#include "model/paths.h"
#include "storage/open_files.h"

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

Save::Save(const Source& from, const OpenOptions& how, Tag which)
    : source(from), options(how), tag(std::move(which)), assembly(from, how, "deepspeed", "", "DeepSpeed") {}

Status Save::read() {
    SHARDSCOPE_TRY(readModelFiles());
    SHARDSCOPE_TRY(chooseDegrees());
    if (tag.universal) return {};
    SHARDSCOPE_TRY(readOptimizerFiles());
    return groupsFromSlices();
}

// Reads one file ahead of the others.
Result<uint32_t> Save::look(const TagFile& file) {
    return assembly.addFile(file.name, file.about.dp);
}

Status Save::readModelFiles() {
    using Kind = FileName::Kind;
    const auto count = [&](Kind kind) {
        return std::ranges::count_if(tag.files, [&](const TagFile& f) { return f.about.kind == kind; });
    };
    // Files of both kinds are of two saves: the stage in the optimizer's file tells which counts.
    // A universal checkpoint for all stages has both, with the weights in those of stage 2.
    const bool forAllStages = tag.universal && count(Kind::model) > 0;
    bool perRank = count(Kind::zeroModel) > 0 && !forAllStages;
    for (const TagFile& file : tag.files) {
        if (file.about.kind != Kind::zeroOptimizer || file.about.dp != 0) continue;
        if (perRank && count(Kind::model) == 0) break;
        SHARDSCOPE_ASSIGN(const uint32_t index, look(file));
        if (index == kNone) continue;
        const Entries entries(contents(index));
        perRank = entries.integer("optimizer_state_dict.zero_stage") == 3;
        break;
    }
    for (const TagFile& file : tag.files) {
        const FileName& about = file.about;
        if (about.kind != Kind::model && about.kind != Kind::zeroModel) continue;
        if ((about.kind == Kind::zeroModel) != perRank) {
            if (forAllStages) {
                assembly.addUnused({file.name, DirectoryEntry::Kind::file, file.size}, about.dp);
                continue;
            }
            addStale(file, about.dp,
                     "model states of another ZeRO stage: an earlier save into the same directory");
            continue;
        }
        models.push_back({&file, about.dp, about.mp, kNone, {}});
    }
    stage = perRank ? 3 : 0;
    SHARDSCOPE_TRY(assembly.addEach(
        models, [](const ModelFile& model) { return std::pair(model.file->name, model.dp); }));
    for (ModelFile& model : models) {
        if (model.index == kNone) continue;
        SHARDSCOPE_ASSIGN(model.states, readModelStates(contents(model.index)));
    }
    std::ranges::sort(models, {}, [](const ModelFile& m) { return std::pair(m.mp, m.dp); });
    // All ranks list the same parameters; what the first one says is kept.
    for (ModelFile& model : models) {
        if (modelOf(model.mp) != &model) model.states.groups = {};
    }
    return {};
}

const ModelFile* Save::modelOf(uint32_t mp) const {
    const auto found =
        std::ranges::find_if(models, [&](const ModelFile& m) { return m.mp == mp && m.index != kNone; });
    return found == models.end() ? nullptr : &*found;
}

Status Save::chooseDegrees() {
    std::optional<int64_t> dp, mp, tp;
    for (const ModelFile& model : models) {
        if (model.index == kNone) continue;
        if (!dp) dp = model.states.dpWorld;
        if (!mp) mp = model.states.mpWorld;
        if (!tp) tp = model.states.tpDegree;
    }
    const bool stated = mp.has_value();
    int64_t most = 0, layerTp = 0;
    bool layers = false;
    for (const TagFile& file : tag.files) {
        using Kind = FileName::Kind;
        const Kind kind = file.about.kind;
        if (kind == Kind::layer) {
            layers = true;
            layerTp = std::max<int64_t>(layerTp, file.about.mp + 1);
        } else if (kind != Kind::expertOptimizer && kind != Kind::expert) {
            most = std::max<int64_t>(most, file.about.mp + 1);
        }
    }
    if (!mp) mp = std::max<int64_t>(most, 1);
    if (!dp) {
        // Without model states the optimizer's files say how many there are.
        for (const TagFile& file : tag.files) {
            if (file.about.kind != FileName::Kind::zeroOptimizer) continue;
            SHARDSCOPE_ASSIGN(const uint32_t index, look(file));
            if (index == kNone) continue;
            SHARDSCOPE_ASSIGN(const OptimizerStates states, readOptimizerStates(contents(index)));
            if (states.partitionCount() > 0) dp = states.partitionCount();
            break;
        }
    }
    // Before 0.19 pipelines are known by their layer files only.
    if (!tp) tp = layers ? layerTp : *mp;
    const auto bad = [&](const char* what, int64_t value) -> Error {
        return damaged(fmt::format("the model states say that the {} is {}", what, value))
            .inFile(models.empty() ? source.display : models[0].file->name)
            .byRule(rule::metaInconsistent);
    };
    if (!dp) dp = 1;
    if (*dp < 1 || *dp > kMostWorld) return bad("number of data-parallel ranks", *dp);
    // Some files may be missing, not nearly all.
    const int64_t mostMp = std::max<int64_t>(64, 16 * static_cast<int64_t>(tag.files.size()));
    if (*mp < 1 || *mp > mostMp || *mp * *dp > kMostWorld) return bad("number of model-parallel ranks", *mp);
    if (*tp < 1 || *mp % *tp != 0) {
        if (stated && tp != *mp) return bad("degree of tensor parallelism", *tp);
        tp = *mp;
    }
    dpWorld = static_cast<uint32_t>(*dp);
    mpWorld = static_cast<uint32_t>(*mp);
    tpDegree = static_cast<uint32_t>(*tp);
    std::erase_if(models, [&](const ModelFile& model) {
        if (model.mp < mpWorld && model.dp < dpWorld) return false;
        assembly.note(rule::fileStale, Severity::warning, ofEarlierRanks(), model.file->name);
        return true;
    });
    // Only now the ranks are known.
    for (const ModelFile& model : models) {
        if (model.index != kNone)
            assembly.builder().file(contents(model.index).id).rank = rankOf(model.dp, model.mp);
    }
    return {};
}

// For a model with experts DeepSpeed up to 0.14 writes no param_shapes (runtime/engine.py
// _save_moe_checkpoint). What is in the flat groups, and in which order, the slices of all ranks say
// together; the weights have the shapes.
Status Save::groupsFromSlices() {
    if (stage != 1 && stage != 2) return {};
    for (ModelFile& model : models) {
        if (model.states.hasGroups || modelOf(model.mp) != &model) continue;
        std::vector<const OptimizerFile*> ranks;
        for (const OptimizerFile& file : optimizers) {
            if (file.mp == model.mp && file.index != kNone && file.states.hasSlices) ranks.push_back(&file);
        }
        if (ranks.size() != dpWorld) continue;
        std::ranges::sort(ranks, {}, &OptimizerFile::dp);
        std::unordered_map<std::string, Dims> shapes;
        for (const StoredTensor& tensor : contents(model.index).tensors) {
            if (tensor.path.size() > 1 && tensor.path[0].text == "module")
                shapes.emplace(pathName(below(tensor.path)), tensor.shape);
        }
        for (const TagFile& file : tag.files) {
            if (file.about.kind != FileName::Kind::expert || file.about.mp != model.mp) continue;
            SHARDSCOPE_ASSIGN(const uint32_t index, look(file));
            if (index == kNone) continue;
            for (const StoredTensor& tensor : contents(index).tensors)
                shapes.emplace(pathName(tensor.path), tensor.shape);
        }
        std::vector<std::vector<NamedShape>> groups;
        std::set<std::string> seen;
        bool known = true;
        for (const OptimizerFile* file : ranks) {
            groups.resize(std::max(groups.size(), file->states.slices.size()));
            for (size_t g = 0; g < file->states.slices.size(); ++g) {
                for (const Slice& slice : file->states.slices[g]) {
                    if (!seen.insert(slice.name).second) continue;
                    const auto shape = shapes.find(slice.name);
                    known = known && shape != shapes.end();
                    if (known) groups[g].push_back({slice.name, shape->second, elementCount(shape->second)});
                }
            }
        }
        if (!known) continue;
        model.states.groups = std::move(groups);
        model.states.hasGroups = true;
    }
    return {};
}

Status Save::readOptimizerFiles() {
    bool bf16 = true;
    if (!models.empty() && models[0].index != kNone) {
        const Entries entries(contents(models[0].index));
        bf16 = entries["ds_config.bf16.enabled"].isTrue() || entries["ds_config.bfloat16.enabled"].isTrue();
        expertsAfterData = entries["ds_config.use_data_before_expert_parallelism"].isTrue() ||
                           entries["ds_config.use_data_before_expert_parallel_"].isTrue();
    }
    std::map<std::pair<uint32_t, uint32_t>, const TagFile*> chosen;
    for (const TagFile& file : tag.files) {
        if (file.about.kind != FileName::Kind::zeroOptimizer) continue;
        if (file.about.dp >= dpWorld || file.about.mp >= mpWorld) {
            addStale(file, file.about.dp, ofEarlierRanks());
            continue;
        }
        const auto [it, fresh] = chosen.try_emplace({file.about.mp, file.about.dp}, &file);
        if (fresh) continue;
        const TagFile* other = &file;
        if (file.about.bf16 == bf16) std::swap(it->second, other);
        addStale(*other, other->about.dp, "of a save with another dtype into the same directory");
    }
    for (const auto& [at, file] : chosen)
        optimizers.push_back({file, at.second, at.first, kNone, {}});
    SHARDSCOPE_TRY(assembly.addEach(
        optimizers,
        [&](const OptimizerFile& file) { return std::pair(file.file->name, rankOf(file.dp, file.mp)); },
        lacksOfOptimizer()));
    for (OptimizerFile& file : optimizers) {
        if (file.index == kNone) continue;
        assembly.builder().file(contents(file.index).id).rank = rankOf(file.dp, file.mp);
        SHARDSCOPE_ASSIGN(file.states, readOptimizerStates(contents(file.index)));
        const int64_t said = file.states.stage.value_or(1);
        if (!file.states.stage) bf16Optimizer = true;
        if (stage != 3 && said >= 1 && said <= 2) stage = static_cast<int>(said);
        if (said == 3) stage = 3;
        const int64_t count = file.states.partitionCount();
        // MiCS partitions over a part of the ranks.
        const bool mics = said == 3 && count > 0 && dpWorld % count == 0;
        if (count != 0 && count != dpWorld && !mics)
            assembly.wrong(fmt::format("it is one of {}, the save was by {}: it "
                                       "is of another save",
                                       counted(count, "partition"), counted(dpWorld, "data-parallel rank")),
                           file.file->name);
    }
    // The state of optimizers is in these files whenever ZeRO is on; a name without one says so.
    if (optimizers.empty() && stage == 0 &&
        std::ranges::any_of(models, [](const ModelFile& m) { return m.states.hasGroups; }))
        stage = 1;
    return {};
}

std::string Save::ofEarlierRanks() const {
    return fmt::format("the save was by {} x {}; this is of an earlier one",
                       counted(dpWorld, "data-parallel rank"), counted(mpWorld, "model-parallel rank"));
}

void Save::addStale(const TagFile& file, uint32_t rank, std::string message) {
    assembly.addUnused({file.name, DirectoryEntry::Kind::file, file.size}, rank);
    assembly.note(rule::fileStale, Severity::warning, std::move(message), file.name);
}

}  // namespace shardscope::deepspeed

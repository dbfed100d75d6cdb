#include "formats/deepspeed/opener.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "base/rule.h"
#include "base/text.h"
#include "formats/companions.h"

namespace shardscope::deepspeed {

namespace {

constexpr uint32_t kMostWorld = 1'000'000;
constexpr size_t kMostMissing = 1000;  // files that are listed one by one

// What the engine itself writes besides the weights (runtime/engine.py _common_checkpoint_state); everything
// else is the client's state.
constexpr std::array<std::string_view, 15> kEngineKeys = {"lr_scheduler",
                                                          "data_sampler",
                                                          "random_ltd",
                                                          "sparse_tensor_module_names",
                                                          "skipped_steps",
                                                          "global_steps",
                                                          "global_samples",
                                                          "dp_world_size",
                                                          "mp_world_size",
                                                          "ds_config",
                                                          "ds_version",
                                                          "checkpoint_parallel_dimensions",
                                                          "num_experts",
                                                          "ds_autoep_layers",
                                                          "universal_checkpoint_info"};
// How the elements are laid out: what the catalog says in its own words.
constexpr std::array<std::string_view, 15> kLayoutKeys = {"module",
                                                          "buffer_names",
                                                          "param_shapes",
                                                          "frozen_param_shapes",
                                                          "shared_params",
                                                          "optimizer_state_dict",
                                                          "frozen_param_fragments",
                                                          "base_optimizer_state",
                                                          "group_paddings",
                                                          "partition_count",
                                                          "param_alignment_paddings",
                                                          "param_slice_mappings",
                                                          "fp32_flat_groups",
                                                          "single_partition_of_fp32_groups",
                                                          "fp32_groups"};

template <class List>
bool holds(const List& list, std::string_view word) {
    return std::ranges::find(list, word) != list.end();
}

// The name of an entry of a model file in the catalog; empty for what is shown in another way.
Path modelPath(const Path& path) {
    if (path.empty() || path[0].kind != PathPart::Kind::key) return {};
    if (holds(kEngineKeys, path[0].text)) return path;
    if (path[0].text == "optimizer") {
        // Without ZeRO the optimizer's states are here; they are shown by parameter.
        for (const PathPart& part : path) {
            if (part.text == "state" || part.text == "fp32_groups" || part.text == "fp32_groups_flat")
                return {};
        }
        Path out = path;
        std::erase_if(out, [](const PathPart& part) { return part.text == "optimizer_state_dict"; });
        return out.size() > 1 ? out : Path();
    }
    // Such as the extra state of a layer.
    if (path[0].text == "module") return Path(path.begin() + 1, path.end());
    if (holds(kLayoutKeys, path[0].text)) return {};
    Path out{keyPart("client_state")};
    out.insert(out.end(), path.begin(), path.end());
    return out;
}

// The same of an optimizer's file.
Path optimizerPath(const Path& path) {
    size_t at = 0;
    if (!path.empty() && path[0].text == "optimizer_state_dict") at = 1;
    if (at == 0 || path.size() <= at) return {};
    if (path[at].text == "base_optimizer_state" || path[at].text == "optimizer_state_dict") {
        if (path.size() <= at + 1 || path[at + 1].text != "param_groups") return {};
        ++at;
    } else if (holds(kLayoutKeys, path[at].text)) {
        return {};
    }
    Path out{keyPart("optimizer")};
    out.insert(out.end(), path.begin() + static_cast<int64_t>(at), path.end());
    return out;
}

// A step as text: a float32 of torch's AdamW, or an integer.
std::string stepText(DType dtype, const std::string& bytes) {
    float real = 0;
    int64_t integer = 0;
    if (dtype == DType::float32 && bytes.size() == sizeof real) {
        std::memcpy(&real, bytes.data(), sizeof real);
        return fmt::format("{}", real);
    }
    std::memcpy(&integer, bytes.data(), std::min(bytes.size(), sizeof integer));
    return fmt::format("{}", integer);
}

}  // namespace

Opener::Opener(const Source& source, const OpenOptions& options, Tag tag)
    : source_(source),
      options_(options),
      tag_(std::move(tag)),
      assembly_(source, options, "deepspeed", "", "DeepSpeed") {}

Result<std::unique_ptr<Reader>> Opener::open() {
    for (const char* name : {"latest", "latest_universal"}) {
        if (source_.hasFile(name)) (void)assembly_.addText(name);
    }
    noteTracker();
    SHARDSCOPE_TRY(readModelFiles());
    SHARDSCOPE_TRY(chooseDegrees());
    if (!tag_.universal) {
        SHARDSCOPE_TRY(readOptimizerFiles());
        SHARDSCOPE_TRY(groupsFromSlices());
    }
    noteSteps();
    SHARDSCOPE_TRY(gatherWeights());
    SHARDSCOPE_TRY(placeAll());
    addWeights();
    if (tag_.universal) {
        SHARDSCOPE_TRY(addUniversal());
    } else if (stage_ == 0 && optimizers_.empty()) {
        addPlainStates();
    } else {
        addPartitions();
    }
    addAliases();
    addObjects();
    addMissingFiles();
    addOthers();
    const std::string variant = tag_.universal   ? "universal"
                                : bf16Optimizer_ ? "bf16-optimizer"
                                                 : fmt::format("zero-{}", stage_);
    assembly_.builder().setVariant(variant);
    const auto version =
        std::ranges::find_if(models_, [](const ModelFile& m) { return !m.states.version.empty(); });
    if (version != models_.end())
        assembly_.builder().setWriter(fmt::format("DeepSpeed {}", version->states.version));
    return assembly_.finish(dpWorld_ * mpWorld_, mesh(), paddingNotes());
}

// ------------------------------------------------------------------ files

// Where the tag's own directory was named: whether a resume from the one above it would find a tag.
void Opener::noteTracker() {
    if (!tag_.prefix.empty() || !source_.fileSystem) return;
    const auto above = source_.fileSystem->openDirectory(joinPath(source_.directory->path(), ".."));
    if (!above.ok()) return;
    const std::string name = trackedTag(**above, "latest");
    if (name.empty() || (*above)->stat(name).ok()) return;
    assembly_.note(
        rule::fileMissing, Severity::warning,
        fmt::format("'latest' in the directory above names the tag '{}', which is not there: DeepSpeed would "
                    "not find a checkpoint; name this tag when you load it",
                    printable(name, kNameInMessage)));
}

Status Opener::readModelFiles() {
    using Kind = FileName::Kind;
    const auto count = [&](Kind kind) {
        return std::ranges::count_if(tag_.files, [&](const TagFile& f) { return f.about.kind == kind; });
    };
    // Files of both kinds are of two saves: the stage in the optimizer's file tells which counts.
    // A universal checkpoint for all stages has both, with the weights in those of stage 2.
    const bool forAllStages = tag_.universal && count(Kind::model) > 0;
    bool perRank = count(Kind::zeroModel) > 0 && !forAllStages;
    for (const TagFile& file : tag_.files) {
        if (file.about.kind != Kind::zeroOptimizer || file.about.dp != 0) continue;
        if (perRank && count(Kind::model) == 0) break;
        SHARDSCOPE_ASSIGN(const uint32_t index, look(file));
        if (index == kNone) continue;
        const Entries entries(contents(index));
        perRank = entries.integer("optimizer_state_dict.zero_stage") == 3;
        break;
    }
    std::vector<std::pair<std::string, uint32_t>> names;
    for (const TagFile& file : tag_.files) {
        const FileName& about = file.about;
        if (about.kind != Kind::model && about.kind != Kind::zeroModel) continue;
        if ((about.kind == Kind::zeroModel) != perRank) {
            if (forAllStages) {
                assembly_.addUnused({file.name, DirectoryEntry::Kind::file, file.size}, about.dp);
                continue;
            }
            addUnused(file, about.dp,
                      "model states of another ZeRO stage: an earlier save into the same directory");
            continue;
        }
        models_.push_back({&file, about.dp, about.mp, kNone, {}});
        names.emplace_back(file.name, about.dp);
    }
    stage_ = perRank ? 3 : 0;
    SHARDSCOPE_ASSIGN(const std::vector<uint32_t> indices, assembly_.addFiles(names));
    for (size_t i = 0; i < models_.size(); ++i) {
        models_[i].index = indices[i];
        if (indices[i] == kNone) continue;
        SHARDSCOPE_ASSIGN(models_[i].states, readModelStates(contents(indices[i])));
    }
    std::ranges::sort(models_, {}, [](const ModelFile& m) { return std::pair(m.mp, m.dp); });
    // All ranks list the same parameters; what the first one says is kept.
    for (ModelFile& model : models_) {
        if (modelOf(model.mp) != &model) model.states.groups = {};
    }
    return {};
}

const Opener::ModelFile* Opener::modelOf(uint32_t mp) const {
    const auto found =
        std::ranges::find_if(models_, [&](const ModelFile& m) { return m.mp == mp && m.index != kNone; });
    return found == models_.end() ? nullptr : &*found;
}

Status Opener::chooseDegrees() {
    std::optional<int64_t> dp, mp, tp;
    for (const ModelFile& model : models_) {
        if (model.index == kNone) continue;
        if (!dp) dp = model.states.dpWorld;
        if (!mp) mp = model.states.mpWorld;
        if (!tp) tp = model.states.tpDegree;
    }
    const bool stated = mp.has_value();
    int64_t most = 0, layerTp = 0;
    bool layers = false;
    for (const TagFile& file : tag_.files) {
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
        for (const TagFile& file : tag_.files) {
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
            .inFile(models_.empty() ? source_.display : models_[0].file->name)
            .byRule(rule::metaInconsistent);
    };
    if (!dp) dp = 1;
    if (*dp < 1 || *dp > kMostWorld) return bad("number of data-parallel ranks", *dp);
    // Some files may be missing, not nearly all.
    const int64_t mostMp = std::max<int64_t>(64, 16 * static_cast<int64_t>(tag_.files.size()));
    if (*mp < 1 || *mp > mostMp || *mp * *dp > kMostWorld) return bad("number of model-parallel ranks", *mp);
    if (*tp < 1 || *mp % *tp != 0) {
        if (stated && tp != *mp) return bad("degree of tensor parallelism", *tp);
        tp = *mp;
    }
    dpWorld_ = static_cast<uint32_t>(*dp);
    mpWorld_ = static_cast<uint32_t>(*mp);
    tpDegree_ = static_cast<uint32_t>(*tp);
    std::erase_if(models_, [&](const ModelFile& model) {
        if (model.mp < mpWorld_ && model.dp < dpWorld_) return false;
        assembly_.note(
            rule::fileStale, Severity::warning,
            fmt::format(
                "the save was by {} data-parallel x {} model-parallel ranks; this is of an earlier one",
                dpWorld_, mpWorld_),
            model.file->name);
        return true;
    });
    // Only now the ranks are known.
    for (const ModelFile& model : models_) {
        if (model.index != kNone)
            assembly_.builder().file(contents(model.index).id).rank = rankOf(model.dp, model.mp);
    }
    return {};
}

// For a model with experts DeepSpeed up to 0.14 writes no param_shapes (runtime/engine.py
// _save_moe_checkpoint). What is in the flat groups, and in which order, the slices of all ranks say
// together; the weights have the shapes.
Status Opener::groupsFromSlices() {
    if (stage_ != 1 && stage_ != 2) return {};
    for (ModelFile& model : models_) {
        if (model.states.hasGroups || modelOf(model.mp) != &model) continue;
        std::vector<const OptimizerFile*> ranks;
        for (const OptimizerFile& file : optimizers_) {
            if (file.mp == model.mp && file.index != kNone && file.states.hasSlices) ranks.push_back(&file);
        }
        if (ranks.size() != dpWorld_) continue;
        std::ranges::sort(ranks, {}, &OptimizerFile::dp);
        std::unordered_map<std::string, Dims> shapes;
        for (const StoredTensor& tensor : contents(model.index).tensors) {
            if (tensor.path.size() > 1 && tensor.path[0].text == "module")
                shapes.emplace(pathName(Path(tensor.path.begin() + 1, tensor.path.end())), tensor.shape);
        }
        for (const TagFile& file : tag_.files) {
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

Status Opener::readOptimizerFiles() {
    bool bf16 = true;
    if (!models_.empty() && models_[0].index != kNone) {
        const Entries entries(contents(models_[0].index));
        bf16 = entries.isTrue("ds_config.bf16.enabled") || entries.isTrue("ds_config.bfloat16.enabled");
        expertsAfterData_ = entries.isTrue("ds_config.use_data_before_expert_parallelism") ||
                            entries.isTrue("ds_config.use_data_before_expert_parallel_");
    }
    std::map<std::pair<uint32_t, uint32_t>, const TagFile*> chosen;
    for (const TagFile& file : tag_.files) {
        if (file.about.kind != FileName::Kind::zeroOptimizer) continue;
        if (file.about.dp >= dpWorld_ || file.about.mp >= mpWorld_) {
            addUnused(
                file, file.about.dp,
                fmt::format(
                    "the save was by {} data-parallel x {} model-parallel ranks; this is of an earlier one",
                    dpWorld_, mpWorld_));
            continue;
        }
        const auto [it, fresh] = chosen.try_emplace({file.about.mp, file.about.dp}, &file);
        if (fresh) continue;
        const TagFile* other = &file;
        if (file.about.bf16 == bf16) std::swap(it->second, other);
        addUnused(*other, other->about.dp, "of a save with another dtype into the same directory");
    }
    std::vector<std::pair<std::string, uint32_t>> names;
    for (const auto& [at, file] : chosen) {
        optimizers_.push_back({file, at.second, at.first, kNone, {}});
        names.emplace_back(file->name, rankOf(at.second, at.first));
    }
    SHARDSCOPE_ASSIGN(const std::vector<uint32_t> indices, assembly_.addFiles(names));
    for (OptimizerFile& file : optimizers_) {
        file.index = indices[static_cast<size_t>(&file - optimizers_.data())];
        if (file.index == kNone) continue;
        assembly_.builder().file(contents(file.index).id).rank = rankOf(file.dp, file.mp);
        SHARDSCOPE_ASSIGN(file.states, readOptimizerStates(contents(file.index)));
        const int64_t stage = file.states.stage.value_or(1);
        if (!file.states.stage) bf16Optimizer_ = true;
        if (stage_ != 3 && stage >= 1 && stage <= 2) stage_ = static_cast<int>(stage);
        if (stage == 3) stage_ = 3;
        const int64_t count = file.states.partitionCount();
        // MiCS partitions over a part of the ranks.
        const bool mics = stage == 3 && count > 0 && dpWorld_ % count == 0;
        if (count != 0 && count != dpWorld_ && !mics)
            assembly_.note(
                rule::metaInconsistent, Severity::error,
                fmt::format("it is one of {} partitions, the save was by {} data-parallel ranks: it is "
                            "of another save",
                            count, dpWorld_),
                file.file->name);
    }
    // The state of optimizers is in these files whenever ZeRO is on; a name without one says so.
    if (optimizers_.empty() && stage_ == 0 &&
        std::ranges::any_of(models_, [](const ModelFile& m) { return m.states.hasGroups; }))
        stage_ = 1;
    return {};
}

void Opener::addUnused(const TagFile& file, uint32_t rank, std::string message) {
    assembly_.addUnused({file.name, DirectoryEntry::Kind::file, file.size}, rank);
    assembly_.note(rule::fileStale, Severity::warning, std::move(message), file.name);
}

void Opener::addMissingFiles() {
    size_t listed = 0;
    const auto missing = [&](std::string name, uint32_t rank, std::string message, Note::Lacks lacks) {
        if (++listed <= kMostMissing)
            assembly_.addMissing(tag_.prefix + name, rank, Severity::error, std::move(message), lacks);
    };
    // What only files name that cannot be read is not in the catalog.
    const auto broken = [&](const TagFile& file, Note::Lacks lacks) {
        assembly_.note(rule::rankMissing, Severity::error,
                       "it cannot be read; what only it says of the tensors is lacking", file.name, {},
                       lacks);
    };
    std::set<std::pair<uint32_t, uint32_t>> models, optimizers;
    std::set<uint32_t> readable;
    for (const ModelFile& model : models_) {
        models.emplace(model.mp, model.dp);
        if (!modelOf(model.mp)) broken(*model.file, Note::Lacks::anything);
    }
    bool prefix = false;
    for (const OptimizerFile& file : optimizers_) {
        optimizers.emplace(file.mp, file.dp);
        if (file.index != kNone) readable.insert(file.mp);
        prefix = prefix || file.file->about.bf16;
    }
    for (const OptimizerFile& file : optimizers_) {
        if (!readable.contains(file.mp))
            broken(*file.file, stage_ == 3 ? Note::Lacks::anything : Note::Lacks::optimizerState);
    }
    for (uint32_t mp = 0; mp < mpWorld_; ++mp) {
        const bool known = modelOf(mp) != nullptr;
        for (uint32_t dp = 0; dp < (stage_ == 3 ? dpWorld_ : 1); ++dp) {
            if (models.contains({mp, dp})) continue;
            missing(stage_ == 3 ? fmt::format("zero_pp_rank_{}_mp_rank_{:02}_model_states.pt", dp, mp)
                                : fmt::format("mp_rank_{:02}_model_states.pt", mp),
                    rankOf(dp, mp), "the model states of this rank are missing",
                    known ? Note::Lacks::nothing : Note::Lacks::anything);
        }
        for (uint32_t dp = 0; dp < dpWorld_ && stage_ > 0 && !tag_.universal; ++dp) {
            if (optimizers.contains({mp, dp})) continue;
            missing(
                fmt::format("{}zero_pp_rank_{}_mp_rank_{:02}_optim_states.pt", prefix ? "bf16_" : "", dp, mp),
                rankOf(dp, mp),
                fmt::format(
                    "the optimizer states of this rank are missing; the save was by {} data-parallel ranks",
                    dpWorld_),
                stage_ == 3 ? Note::Lacks::anything : Note::Lacks::optimizerState);
        }
    }
    // Parameters without a weight: those of a pipeline are in the file of their layer.
    const bool layers = std::ranges::any_of(
        tag_.files, [](const TagFile& file) { return file.about.kind == FileName::Kind::layer; });
    std::set<std::string> lacking;
    for (const Parameter& parameter : parameters_) {
        if (stage_ == 3 || tag_.universal || !parameter.stored.empty() || parameter.placement.shards.empty())
            continue;
        const std::string layer = parameter.name.substr(0, parameter.name.find('.'));
        const bool numbered = layers && !layer.empty() && layer.find_first_not_of("0123456789") == layer.npos;
        if (numbered && lacking.insert(layer).second) {
            missing(fmt::format("layer_{:0>2}-{}model_states.pt", layer, tpDegree_ > 1 ? "model_00-" : ""), 0,
                    "the weights of this layer are missing", Note::Lacks::anything);
        } else if (!numbered && lacking.size() < kMostMissing && lacking.insert(parameter.name).second) {
            assembly_.note(rule::metaInconsistent, Severity::error,
                           "param_shapes lists it, and no file here holds its weight",
                           modelOf(0) ? modelOf(0)->file->name : "", parameter.name, Note::Lacks::anything);
        }
    }
    // Files of experts: each layer has all of its experts.
    std::set<std::pair<uint32_t, uint32_t>> experts;
    for (const TagFile& file : tag_.files) {
        if (file.about.kind == FileName::Kind::expert) experts.emplace(file.about.layer, file.about.expert);
    }
    if (const ModelFile* first = modelOf(0); first && !experts.empty()) {
        const auto& counts = first->states.experts;
        for (uint32_t layer = 0; layer < counts.size(); ++layer) {
            for (int64_t e = 0; e < std::min<int64_t>(counts[layer], kMostWorld); ++e) {
                if (!experts.contains({layer, static_cast<uint32_t>(e)}))
                    missing(fmt::format("layer_{}_expert_{}_mp_rank_00_model_states.pt", layer, e), 0,
                            "the weights of this expert are missing", Note::Lacks::anything);
            }
        }
    }
    if (listed > kMostMissing)
        assembly_.note(rule::rankMissing, Severity::error,
                       fmt::format("{} files are missing in all", listed));
}

// ------------------------------------------------------------------ saves that were mixed

// Files of one save are of one step.
void Opener::noteSteps() {
    std::optional<int64_t> steps;
    for (const ModelFile& model : models_) {
        if (model.index == kNone || !model.states.steps) continue;
        if (!steps) steps = model.states.steps;
        if (*model.states.steps != *steps)
            assembly_.note(rule::metaInconsistent, Severity::error,
                           fmt::format("it is of step {}, '{}' of step {}: files of two saves are mixed",
                                       *model.states.steps, models_[0].file->name, *steps),
                           model.file->name);
    }
    // By group: the text of the step, and the files that have it.
    std::map<std::pair<uint32_t, int64_t>, std::map<std::string, std::vector<const OptimizerFile*>>> found;
    for (const OptimizerFile& file : optimizers_) {
        if (file.index == kNone) continue;
        for (const auto& [number, group] : file.states.groups) {
            for (const auto& [state, tensor] : group.tensors) {
                const StoredTensor& stored = contents(file.index).tensors[tensor];
                if (state != "step" || stored.shape.size() > 1 || elementCount(stored.shape) != 1) continue;
                const auto bytes = assembly_.files().bytesOf(file.index, tensor);
                if (!bytes.ok()) continue;
                found[{file.mp, number}][stepText(stored.dtype, *bytes)].push_back(&file);
            }
            for (const auto& [state, value] : group.objects) {
                if (state == "step") found[{file.mp, number}][valueRepr(*value, 40)].push_back(&file);
            }
        }
    }
    std::set<std::string> named;
    for (const auto& [group, byStep] : found) {
        if (byStep.size() < 2) continue;
        // What the model states say counts; else what most files say.
        auto usual = steps ? byStep.find(fmt::format("{}", *steps)) : byStep.end();
        if (usual == byStep.end())
            usual =
                std::ranges::max_element(byStep, {}, [](const auto& entry) { return entry.second.size(); });
        for (const auto& [step, files] : byStep) {
            if (step == usual->first) continue;
            for (const OptimizerFile* file : files) {
                if (named.insert(file->file->name).second)
                    assembly_.note(
                        rule::metaInconsistent, Severity::error,
                        fmt::format("its states are of step {}, those of '{}' of step {}: files of two "
                                    "saves are mixed",
                                    step, usual->second[0]->file->name, usual->first),
                        file->file->name);
            }
        }
    }
}

// ------------------------------------------------------------------ the rest

void Opener::addObjects() {
    const auto add = [&](uint32_t file, uint32_t rank, Path (*pathOf)(const Path&)) {
        for (const StoredObject& object : contents(file).objects) {
            Path path = pathOf(object.path);
            if (path.empty()) continue;
            // ZeroStageEnum(2) is a number.
            const bool stage = path.back().text == "zero_stage";
            assembly_.addObject(file, std::move(path), stage ? makeIntegerValue(stage_) : object.value, rank);
        }
        for (uint32_t t = 0; t < contents(file).tensors.size(); ++t) {
            const Path& stored = contents(file).tensors[t].path;
            if (stored.empty() || stored[0].text == "module") continue;
            if (Path path = pathOf(stored); !path.empty())
                assembly_.addWhole(file, t, std::move(path), Role::other, rank);
        }
    };
    for (const ModelFile& model : models_) {
        if (model.index == kNone) continue;
        add(model.index, rankOf(model.dp, model.mp), modelPath);
        break;
    }
    for (const OptimizerFile& file : optimizers_) {
        if (file.index == kNone) continue;
        add(file.index, rankOf(file.dp, file.mp), optimizerPath);
        break;
    }
}

// What else is in the tag's directory.
void Opener::addOthers() {
    for (const DirectoryEntry& entry : tag_.others) {
        if (tag_.prefix.empty() || entry.kind != DirectoryEntry::Kind::file) continue;
        assembly_.addUnused(entry, kNone);
        if (mayHoldTensors(entry.name.substr(tag_.prefix.size()), entry.size))
            assembly_.note(rule::fileUnreferenced, Severity::info, "nothing of the checkpoint refers to it",
                           entry.name);
    }
}

Mesh Opener::mesh() const {
    Mesh mesh;
    if (mpWorld_ / tpDegree_ > 1) mesh.axes.push_back({"pp", mpWorld_ / tpDegree_});
    mesh.axes.push_back({"dp", dpWorld_});
    if (tpDegree_ > 1) mesh.axes.push_back({"tp", tpDegree_});
    mesh.evidence = {fmt::format("{}: as the model states say", formatMesh(mesh))};
    return mesh;
}

}  // namespace shardscope::deepspeed

// Names, shapes and places of the weights: from `module`, layer files, files of experts, and in stage 3 from
// the masters and fragments.
#include <algorithm>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/option_words.h"
#include "base/rule.h"
#include "formats/deepspeed/opener.h"

namespace shardscope::deepspeed {

namespace {

constexpr std::string_view kExperts = ".deepspeed_experts.";

// "a.deepspeed_experts.3.w" is expert 3; `end` is where the number ends.
std::optional<int64_t> expertNumber(std::string_view name, size_t& start, size_t& end) {
    const size_t at = name.find(kExperts);
    if (at == name.npos) return std::nullopt;
    start = at + kExperts.size();
    std::string_view rest = name.substr(start);
    const auto number = takeNumber<int64_t>(rest, kMaxDim);
    end = name.size() - rest.size();
    return number;
}

// What is below a key of the file: "weight" of "module" / "weight".
std::optional<std::string> nameBelow(const Path& path, std::string_view key) {
    if (path.size() < 2 || path[0].text != key) return std::nullopt;
    return pathName(Path(path.begin() + 1, path.end()));
}

}  // namespace

Path statePath(const std::string& name, const std::string& state) {
    return {keyPart("optimizer"), keyPart("state"), keyPart(name), keyPart(state)};
}

size_t Opener::parameterOf(const std::string& name) {
    const auto [it, fresh] = byName_.try_emplace(name, parameters_.size());
    if (fresh) {
        parameters_.emplace_back().name = name;
        parameters_.back().shapes.resize(tpDegree_);
    }
    return it->second;
}

void Opener::stateShape(const std::string& name, uint32_t tp, const Dims& shape, const std::string& file) {
    auto& known = parameters_[parameterOf(name)].shapes[tp];
    if (!known) {
        known = shape;
    } else if (*known != shape && noted_.insert(name).second) {
        assembly_.note(
            rule::metaInconsistent, Severity::error,
            fmt::format("its shape is {} here and {} elsewhere", formatDims(shape), formatDims(*known)), file,
            name);
    }
}

void Opener::addStored(const std::string& name, StoredWeight stored, bool buffer) {
    const TensorFile& file = contents(stored.file);
    const StoredTensor& tensor = file.tensors[stored.tensor];
    stateShape(name, stored.tp, tensor.shape, file.name);
    Parameter& parameter = parameters_[parameterOf(name)];
    parameter.dtype = tensor.dtype;
    parameter.buffer = parameter.buffer || buffer;
    parameter.stored.push_back(stored);
}

// Number of an expert over all ranks: the optimizer's files and param_shapes count on each rank.
std::string Opener::globalName(const std::string& local, int64_t expertRank) const {
    size_t start = 0, end = 0;
    const auto number = expertNumber(local, start, end);
    if (!number || expertRank == 0) return local;
    const auto perRank = expertsPerRank_.find(local.substr(0, start));
    if (perRank == expertsPerRank_.end()) return local;
    return fmt::format("{}{}{}", local.substr(0, start), *number + expertRank * perRank->second,
                       local.substr(end));
}

Status Opener::gatherWeights() {
    for (const ModelFile& model : models_) {
        if (model.index == kNone) continue;
        for (const auto& group : model.states.groups) {
            for (const NamedShape& named : group) {
                size_t start = 0, end = 0;
                const auto number = expertNumber(named.name, start, end);
                if (!number) continue;
                int64_t& count = expertsPerRank_[named.name.substr(0, start)];
                count = std::max(count, *number + 1);
            }
        }
    }
    for (const ModelFile& model : models_) {
        if (model.index != kNone) gatherModule(model);
    }
    gatherLayers();
    gatherExperts();
    return {};
}

void Opener::gatherModule(const ModelFile& model) {
    const TensorFile& file = contents(model.index);
    const uint32_t tp = tpOf(model.mp), rank = rankOf(model.dp, model.mp);
    const bool first = modelOf(model.mp) == &model;
    if (first) {
        std::map<std::string, const NamedShape*> shapes;
        for (const NamedShape& named : model.states.frozen)
            shapes[named.name] = &named;
        for (const auto& group : model.states.groups) {
            for (const NamedShape& named : group)
                shapes[named.name] = &named;
        }
        for (uint32_t t = 0; t < file.tensors.size(); ++t) {
            const auto name = nameBelow(file.tensors[t].path, "module");
            if (!name || file.tensors[t].special != kNone) continue;
            const auto shape = shapes.find(*name);
            const bool placeholder = (stage_ == 3 || tag_.universal) && file.tensors[t].shape == Dims{0} &&
                                     !model.states.buffers.contains(*name);
            if (!placeholder) {
                addStored(*name, {tp, rank, model.index, t}, model.states.buffers.contains(*name));
            } else if (shape != shapes.end()) {
                // An empty tensor that says the dtype; the elements are in the masters or in fragments.
                stateShape(*name, tp, shape->second->shape, file.name);
                parameters_[parameterOf(*name)].dtype = file.tensors[t].dtype;
            }
        }
    }
    // In stages 1 and 2 the parameters of the flat groups; experts are those of the first rank.
    for (size_t g = 0; first && g < model.states.groups.size(); ++g) {
        for (const NamedShape& named : model.states.groups[g])
            stateShape(named.name, tp, named.shape, file.name);
    }
    if (stage_ != 3) return;
    std::map<std::string, int64_t> frozen;
    for (const NamedShape& named : model.states.frozen)
        frozen[named.name] = named.elements;
    for (uint32_t t = 0; t < file.tensors.size(); ++t) {
        const auto name = nameBelow(file.tensors[t].path, "frozen_param_fragments");
        if (!name || !frozen.contains(*name)) continue;
        parameters_[parameterOf(*name)].dtype = file.tensors[t].dtype;
        parameters_[parameterOf(*name)].stored.push_back({tp, rank, model.index, t});
    }
}

// The tie whose parameter a layer's file holds: "tied_modules.embed". The first that no other file holds, or
// one that another file holds with the same values.
std::string Opener::tieFor(const TensorFile& file, const std::map<std::string, const NamedShape*>& shapes,
                           const std::map<std::string, uint32_t>& taken, uint32_t index) {
    constexpr std::string_view kTied = "tied_modules.";
    for (const bool again : {false, true}) {
        for (auto it = shapes.lower_bound(std::string(kTied));
             it != shapes.end() && it->first.starts_with(kTied); ++it) {
            const size_t dot = it->first.find('.', kTied.size());
            if (dot == it->first.npos) continue;
            const std::string tie = it->first.substr(0, dot);
            const uint32_t t = file.find(it->first.substr(dot + 1));
            const auto holder = taken.find(tie);
            if (t == kNone || file.tensors[t].shape != it->second->shape || again != (holder != taken.end()))
                continue;
            if (!again) return tie;
            const uint32_t other = contents(holder->second).find(it->first.substr(dot + 1));
            if (other != kNone && assembly_.files().equal(holder->second, other, index, t) == true)
                return tie;
        }
    }
    return {};
}

// `layer_05-model_states.pt` holds names of the layer; a layer that is used in several places is known by its
// tie instead of its number.
void Opener::gatherLayers() {
    std::map<std::string, const NamedShape*> shapes;
    std::map<std::string, uint32_t> stages;  // of names
    std::set<std::string> buffers;
    for (const ModelFile& model : models_) {
        for (const auto& group : model.states.groups) {
            for (const NamedShape& named : group) {
                shapes[named.name] = &named;
                stages.try_emplace(named.name, model.mp / tpDegree_);
            }
        }
        for (const std::string& name : model.states.buffers) {
            buffers.insert(name);
            stages.try_emplace(name, model.mp / tpDegree_);
        }
    }
    std::map<std::string, const TagFile*> files;
    std::vector<std::pair<std::string, uint32_t>> names;
    for (const TagFile& file : tag_.files) {
        if (file.about.kind != FileName::Kind::layer || file.about.mp >= tpDegree_) continue;
        names.emplace_back(file.name, rankOf(0, file.about.mp));
        files[file.name] = &file;
    }
    const auto indices = assembly_.addFiles(names);
    if (!indices.ok()) return;
    // The ties in the order of their layers, each taken once.
    std::map<std::string, std::string> tieOf;  // "0" -> "tied_modules.embed"
    std::map<std::string, uint32_t> taken;     // by which file
    bool untied = false;
    for (size_t i = 0; i < names.size(); ++i) {
        if ((*indices)[i] == kNone) continue;
        const TensorFile& file = contents((*indices)[i]);
        const TagFile& about = *files[names[i].first];
        const std::string number = fmt::format("{}", about.about.layer);
        const auto plain = [&](const StoredTensor& t) { return number + "." + pathName(t.path); };
        const bool known = std::ranges::any_of(
            file.tensors, [&](const StoredTensor& t) { return stages.contains(plain(t)); });
        if (!known && !tieOf.contains(number)) {
            if (std::string tie = tieFor(file, shapes, taken, (*indices)[i]); !tie.empty()) {
                taken.try_emplace(tie, (*indices)[i]);
                tieOf[number] = std::move(tie);
            }
        }
        untied = untied || (shapes.empty() && mpWorld_ > tpDegree_);
        for (uint32_t t = 0; t < file.tensors.size(); ++t) {
            if (file.tensors[t].special != kNone) continue;
            std::string name = plain(file.tensors[t]);
            if (const auto tie = tieOf.find(number); tie != tieOf.end())
                name = tie->second + "." + pathName(file.tensors[t].path);
            const auto stage = stages.find(name);
            const uint32_t mp = (stage == stages.end() ? 0 : stage->second) * tpDegree_ + about.about.mp;
            addStored(name, {about.about.mp, rankOf(0, mp), (*indices)[i], t}, buffers.contains(name));
        }
    }
    if (untied)
        assembly_.note(
            rule::metaInconsistent, Severity::info,
            "without ZeRO the files do not name tied layers: such a layer is listed by its number");
}

void Opener::gatherExperts() {
    std::vector<std::pair<std::string, uint32_t>> names;
    std::vector<const TagFile*> files;
    const ModelFile* first = modelOf(0);
    for (const TagFile& file : tag_.files) {
        if (file.about.kind != FileName::Kind::expert || file.about.mp >= mpWorld_) continue;
        const auto* counts = first ? &first->states.experts : nullptr;
        if (counts && file.about.layer < counts->size() && file.about.expert >= (*counts)[file.about.layer]) {
            addUnused(file, kNone,
                      fmt::format("the layer has {} experts: this is of an earlier save",
                                  (*counts)[file.about.layer]));
            continue;
        }
        names.emplace_back(file.name, 0);
        files.push_back(&file);
    }
    const auto indices = assembly_.addFiles(names);
    if (!indices.ok()) return;
    for (size_t i = 0; i < files.size(); ++i) {
        const uint32_t index = (*indices)[i];
        if (index == kNone) continue;
        const TensorFile& file = contents(index);
        for (uint32_t t = 0; t < file.tensors.size(); ++t) {
            if (file.tensors[t].special != kNone) continue;
            const std::string name = pathName(file.tensors[t].path);
            size_t start = 0, end = 0;
            const auto number = expertNumber(name, start, end);
            const auto perRank = expertsPerRank_.find(name.substr(0, start));
            const int64_t dp = number && perRank != expertsPerRank_.end() ? *number / perRank->second : 0;
            if (number && *number != files[i]->about.expert)
                assembly_.note(rule::metaInconsistent, Severity::error,
                               fmt::format("the file's name says expert {}: the file was copied or renamed",
                                           files[i]->about.expert),
                               file.name, name);
            const uint32_t mp = files[i]->about.mp;
            addStored(
                name,
                {tpOf(mp), rankOf(static_cast<uint32_t>(std::min<int64_t>(dp, dpWorld_ - 1)), mp), index, t},
                false);
            parameters_[parameterOf(name)].expert = &files[i]->about;
        }
    }
}

// ------------------------------------------------------------------ places

Status Opener::placeAll() {
    static const TensorFile none;
    const auto readable = std::ranges::find_if(models_, [](const ModelFile& m) { return m.index != kNone; });
    const Entries entries(readable == models_.end() ? none : contents(readable->index));
    SHARDSCOPE_ASSIGN(tp_, TpPlacement::read(entries, options_));
    for (const std::string& pattern : tp_->refused())
        assembly_.note(
            rule::metaInconsistent, Severity::warning,
            fmt::format("the pattern '{}' of universal_checkpoint_info is not used: it cannot be read as a "
                        "regular expression",
                        pattern));
    std::vector<TpShards> all;
    for (const Parameter& parameter : parameters_) {
        TpShards shards{parameter.name, parameter.shapes, parameter.buffer, std::nullopt};
        if (tpDegree_ > 1 && stage_ != 3 && !tp_->hasPatterns()) {
            for (const StoredWeight& stored : parameter.stored) {
                const StoredWeight& first = parameter.stored[0];
                if (stored.tp == first.tp) continue;
                const auto equal =
                    assembly_.files().equal(first.file, first.tensor, stored.file, stored.tensor);
                shards.same = shards.same.value_or(true) && equal.value_or(false);
            }
        }
        all.push_back(std::move(shards));
    }
    tp_->learnWidth(all);
    size_t concluded = 0;
    for (size_t p = 0; p < parameters_.size(); ++p) {
        if (std::ranges::none_of(all[p].shapes, [](const auto& shape) { return shape.has_value(); }))
            continue;
        parameters_[p].placement = tp_->place(all[p]);
        noteRefused(parameters_[p]);
        concluded += !parameters_[p].buffer;
    }
    if (tpDegree_ > 1 && !tp_->hasPatterns() && concluded > 0)
        assembly_.note(rule::metaInconsistent, Severity::info,
                       fmt::format("the files do not say along which dimension {} tensor-parallel ranks cut "
                                   "the parameters (no universal_checkpoint_info); it is concluded from "
                                   "values, shapes and names, and can be stated: {}",
                                   tpDegree_, commandOption("tp-dim", "'GLOB=DIM'")));
    return {};
}

void Opener::noteRefused(const Parameter& parameter) {
    if (parameter.placement.refused.empty()) return;
    assembly_.note(rule::layoutFused, Severity::error,
                   fmt::format("universal_checkpoint_info says that it is several parts, each of which the "
                               "tensor-parallel ranks cut by itself, but {}: it cannot be put together",
                               parameter.placement.refused),
                   {}, parameter.name, Note::Lacks::anything);
}

// What a tensor-parallel rank holds of a tensor, stored as a whole.
void Opener::addShard(const Path& path, DType dtype, Role role, const Parameter& parameter,
                      const StoredWeight& stored) {
    const Placement& placement = parameter.placement;
    assembly_.addBoxes(path, dtype, placement.whole, role,
                       {stored.rank, StoredPart::whole(stored.file, stored.tensor), {}, {}, {}},
                       placement.shards[stored.tp].boxes(placement.whole));
}

void Opener::addWeights() {
    for (const Parameter& parameter : parameters_) {
        if (!parameter.dtype || parameter.placement.shards.empty()) continue;
        const Path path{keyPart(parameter.name)};
        const Role role = parameter.buffer ? Role::buffer : Role::parameter;
        if (!parameter.placement.refused.empty() && !parameter.stored.empty())
            declare(path, *parameter.dtype, role, parameter.stored[0].file, parameter);
        for (const StoredWeight& stored : parameter.stored) {
            const StoredTensor& tensor = contents(stored.file).tensors[stored.tensor];
            // One copy of a buffer stands for all.
            if (parameter.buffer && stored.tp > 0) continue;
            const bool fragment = stage_ == 3 && tensor.path[0].text == "frozen_param_fragments";
            if (fragment) {
                // The piece of one rank, in the order of the ranks; the last ones have padding.
                const auto& shape = parameter.shapes[stored.tp];
                const auto model = std::ranges::find(models_, stored.file, &ModelFile::index);
                if (!shape || model == models_.end()) continue;
                const int64_t total = elementCount(*shape), piece = (total + dpWorld_ - 1) / dpWorld_;
                const int64_t begin = std::min(total, piece * model->dp),
                              end = std::min(total, begin + piece);
                if (tensor.shape != Dims{piece}) {
                    assembly_.note(rule::metaInconsistent, Severity::error,
                                   fmt::format("its part on data-parallel rank {} has shape {}, of {} ranks "
                                               "it would have {} elements",
                                               model->dp, formatDims(tensor.shape), dpWorld_, piece),
                                   contents(stored.file).name, parameter.name);
                    continue;
                }
                OptimizerFile place;
                place.dp = model->dp;
                place.mp = model->mp;
                place.index = stored.file;
                addFlat(path, *parameter.dtype, role, place, stored.tensor, {0, begin, end, 0}, parameter);
                continue;
            }
            addShard(path, *parameter.dtype, role, parameter, stored);
        }
        // Of stage 3: known now, in the order of the model; the elements follow from the masters.
        if (parameter.stored.empty() && !models_.empty() && modelOf(models_[0].mp))
            declare(path, *parameter.dtype, role, modelOf(models_[0].mp)->index, parameter);
    }
}

// Names that share_params lists: in stage 3 nothing else says that they are tied.
void Opener::addAliases() {
    for (const ModelFile& model : models_) {
        for (const auto& [alias, holder] : model.states.shared) {
            if (stage_ == 3 || tag_.universal) assembly_.addAlias({keyPart(alias)}, {keyPart(holder)});
        }
    }
}

}  // namespace shardscope::deepspeed

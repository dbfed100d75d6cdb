#include "formats/deepspeed/parameters.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/option_words.h"
#include "base/units.h"
#include "model/paths.h"

namespace shardscope::deepspeed {

namespace {

constexpr std::string_view kFragments = "frozen_param_fragments";

// "a.deepspeed_experts.3.w" is of expert 3.
std::optional<NumberInName> expertOf(std::string_view name) {
    return NumberInName::behind(name, ".deepspeed_experts.", kMaxDim);
}

// What is below a key of the file: "weight" of "module" / "weight".
std::optional<std::string> nameBelow(const Path& path, std::string_view key) {
    if (path.size() < 2 || path[0].text != key) return std::nullopt;
    return pathName(below(path));
}

TensorAssembly::Piece pieceOf(const StoredWeight& stored) {
    return {stored.rank, StoredPart::whole(stored.file, stored.tensor), {}, {}, {}};
}

// The tie whose parameter a layer's file holds: "tied_modules.embed". The first that no other file holds, or
// one that another file holds with the same values.
std::string tieFor(Save& save, const TensorFile& file, const std::map<std::string, const NamedShape*>& shapes,
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
            const uint32_t other = save.contents(holder->second).find(it->first.substr(dot + 1));
            if (other != kNone && save.assembly.files().equal(holder->second, other, index, t) == true)
                return tie;
        }
    }
    return {};
}

}  // namespace

size_t Parameters::indexOf(const std::string& name) {
    const auto [it, fresh] = byName_.try_emplace(name, list_.size());
    if (fresh) {
        list_.emplace_back().name = name;
        list_.back().shapes.resize(save_.tpDegree);
    }
    return it->second;
}

void Parameters::stateShape(const std::string& name, uint32_t tp, const Dims& shape,
                            const std::string& file) {
    auto& known = list_[indexOf(name)].shapes[tp];
    if (!known) {
        known = shape;
    } else if (*known != shape && disagreeing_.insert(name).second) {
        save_.assembly.wrong(
            fmt::format("its shape is {} here and {} elsewhere", formatDims(shape), formatDims(*known)), file,
            name);
    }
}

void Parameters::addStored(const std::string& name, StoredWeight stored, bool buffer) {
    const TensorFile& file = save_.contents(stored.file);
    const StoredTensor& tensor = file.tensors[stored.tensor];
    stateShape(name, stored.tp, tensor.shape, file.name);
    Parameter& parameter = list_[indexOf(name)];
    parameter.dtype = tensor.dtype;
    parameter.buffer = parameter.buffer || buffer;
    parameter.stored.push_back(stored);
}

// Number of an expert over all ranks: the optimizer's files and param_shapes count on each rank.
std::string Parameters::globalName(const std::string& local, int64_t expertRank) const {
    const auto expert = expertOf(local);
    if (!expert || expertRank == 0) return local;
    const auto perRank = expertsPerRank_.find(expert->before(local));
    if (perRank == expertsPerRank_.end()) return local;
    return expert->with(local, expert->number + expertRank * perRank->second);
}

void Parameters::gather() {
    countExperts();
    for (const ModelFile& model : save_.models) {
        if (model.index == kNone) continue;
        gatherModule(model);
        if (save_.stage == 3) gatherFragments(model);
    }
    gatherLayers();
    gatherExperts();
}

void Parameters::countExperts() {
    for (const ModelFile& model : save_.models) {
        if (model.index == kNone) continue;
        for (const auto& group : model.states.groups) {
            for (const NamedShape& named : group) {
                const auto expert = expertOf(named.name);
                if (!expert) continue;
                int64_t& count = expertsPerRank_[std::string(expert->before(named.name))];
                count = std::max(count, expert->number + 1);
            }
        }
    }
}

void Parameters::gatherModule(const ModelFile& model) {
    const TensorFile& file = save_.contents(model.index);
    const uint32_t tp = save_.tpOf(model.mp), rank = save_.rankOf(model.dp, model.mp);
    const bool first = save_.isFirst(model);
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
            const bool placeholder = (save_.stage == 3 || save_.tag.universal) &&
                                     file.tensors[t].shape == Dims{0} &&
                                     !model.states.buffers.contains(*name);
            if (!placeholder) {
                addStored(*name, {tp, rank, model.index, t}, model.states.buffers.contains(*name));
            } else if (shape != shapes.end()) {
                // An empty tensor that says the dtype; the elements are in the masters or in fragments.
                stateShape(*name, tp, shape->second->shape, file.name);
                list_[indexOf(*name)].dtype = file.tensors[t].dtype;
            }
        }
    }
    // In stages 1 and 2 the parameters of the flat groups; experts are those of the first rank.
    for (size_t g = 0; first && g < model.states.groups.size(); ++g) {
        for (const NamedShape& named : model.states.groups[g])
            stateShape(named.name, tp, named.shape, file.name);
    }
}

// Of frozen parameters in stage 3: the piece of each rank.
void Parameters::gatherFragments(const ModelFile& model) {
    const TensorFile& file = save_.contents(model.index);
    const uint32_t tp = save_.tpOf(model.mp), rank = save_.rankOf(model.dp, model.mp);
    std::set<std::string> frozen;
    for (const NamedShape& named : model.states.frozen)
        frozen.insert(named.name);
    for (uint32_t t = 0; t < file.tensors.size(); ++t) {
        const auto name = nameBelow(file.tensors[t].path, kFragments);
        if (!name || !frozen.contains(*name)) continue;
        Parameter& parameter = list_[indexOf(*name)];
        parameter.dtype = file.tensors[t].dtype;
        parameter.stored.push_back({tp, rank, model.index, t});
    }
}

// `layer_05-model_states.pt` holds names of the layer; a layer that is used in several places is known by its
// tie instead of its number.
void Parameters::gatherLayers() {
    std::map<std::string, const NamedShape*> shapes;
    std::map<std::string, uint32_t> stages;  // of names
    std::set<std::string> buffers;
    for (const ModelFile& model : save_.models) {
        for (const auto& group : model.states.groups) {
            for (const NamedShape& named : group) {
                shapes[named.name] = &named;
                stages.try_emplace(named.name, model.mp / save_.tpDegree);
            }
        }
        for (const std::string& name : model.states.buffers) {
            buffers.insert(name);
            stages.try_emplace(name, model.mp / save_.tpDegree);
        }
    }
    std::vector<OtherFile> files;
    for (const TagFile& file : save_.tag.files) {
        if (file.about.kind == FileName::Kind::layer && file.about.mp < save_.tpDegree)
            files.push_back({&file, kNone});
    }
    if (!save_
             .readOthers(
                 files, [&](const FileName& about) { return save_.rankOf(0, about.mp); },
                 Note::Lacks::anything)
             .ok())
        return;
    // The ties in the order of their layers, each taken once.
    std::map<std::string, std::string> tieOf;  // "0" -> "tied_modules.embed"
    std::map<std::string, uint32_t> taken;     // by which file
    bool untied = false;
    for (const auto& [tagged, index] : files) {
        if (index == kNone) continue;
        const TensorFile& file = save_.contents(index);
        const FileName& about = tagged->about;
        const std::string number = fmt::format("{}", about.layer);
        const auto plain = [&](const StoredTensor& t) { return number + "." + pathName(t.path); };
        const bool known = std::ranges::any_of(
            file.tensors, [&](const StoredTensor& t) { return stages.contains(plain(t)); });
        if (!known && !tieOf.contains(number)) {
            if (std::string tie = tieFor(save_, file, shapes, taken, index); !tie.empty()) {
                taken.try_emplace(tie, index);
                tieOf[number] = std::move(tie);
            }
        }
        untied = untied || (shapes.empty() && save_.mpWorld > save_.tpDegree);
        for (uint32_t t = 0; t < file.tensors.size(); ++t) {
            if (file.tensors[t].special != kNone) continue;
            std::string name = plain(file.tensors[t]);
            if (const auto tie = tieOf.find(number); tie != tieOf.end())
                name = tie->second + "." + pathName(file.tensors[t].path);
            const auto stage = stages.find(name);
            const uint32_t mp = (stage == stages.end() ? 0 : stage->second) * save_.tpDegree + about.mp;
            addStored(name, {about.mp, save_.rankOf(0, mp), index, t}, buffers.contains(name));
        }
    }
    if (untied)
        save_.inconsistent(
            Severity::info,
            "without ZeRO the files do not name tied layers: such a layer is listed by its number");
}

void Parameters::gatherExperts() {
    std::vector<OtherFile> files;
    const ModelFile* first = save_.modelOf(0);
    for (const TagFile& file : save_.tag.files) {
        if (file.about.kind != FileName::Kind::expert || file.about.mp >= save_.mpWorld) continue;
        const auto* counts = first ? &first->states.experts : nullptr;
        if (counts && file.about.layer < counts->size() && file.about.expert >= (*counts)[file.about.layer]) {
            save_.addStale(file, kNone,
                           fmt::format("the layer has {}: this is of an earlier save",
                                       counted((*counts)[file.about.layer], "expert")));
            continue;
        }
        files.push_back({&file, kNone});
    }
    if (!save_
             .readOthers(
                 files, [](const FileName&) { return 0U; }, Note::Lacks::anything)
             .ok())
        return;
    for (const auto& [tagged, index] : files) {
        if (index == kNone) continue;
        const TensorFile& file = save_.contents(index);
        for (uint32_t t = 0; t < file.tensors.size(); ++t) {
            if (file.tensors[t].special != kNone) continue;
            const std::string name = pathName(file.tensors[t].path);
            const auto expert = expertOf(name);
            const auto perRank = expertsPerRank_.find(expert ? expert->before(name) : std::string_view());
            const int64_t dp =
                expert && perRank != expertsPerRank_.end() ? expert->number / perRank->second : 0;
            if (expert && expert->number != tagged->about.expert)
                save_.assembly.wrong(
                    fmt::format("the file's name says expert {}: the file was copied or renamed",
                                tagged->about.expert),
                    file.name, name);
            const uint32_t mp = tagged->about.mp;
            addStored(
                name,
                {save_.tpOf(mp),
                 save_.rankOf(static_cast<uint32_t>(std::min<int64_t>(dp, save_.dpWorld - 1)), mp), index, t},
                false);
            list_[indexOf(name)].expert = &tagged->about;
        }
    }
}

// ------------------------------------------------------------------ places

// Where no patterns say it, equal values show that ranks hold the same.
std::vector<TpShards> Parameters::shardsOfAll(bool compares) const {
    std::vector<TpShards> all;
    for (const Parameter& parameter : list_) {
        TpShards shards{parameter.name, parameter.shapes, parameter.buffer, std::nullopt};
        for (size_t s = 1; compares && s < parameter.stored.size(); ++s) {
            const StoredWeight &first = parameter.stored[0], &stored = parameter.stored[s];
            if (stored.tp == first.tp) continue;
            const auto equal =
                save_.assembly.files().equal(first.file, first.tensor, stored.file, stored.tensor);
            shards.same = shards.same.value_or(true) && equal.value_or(false);
        }
        all.push_back(std::move(shards));
    }
    return all;
}

Status Parameters::place() {
    static const TensorFile none;
    const auto readable =
        std::ranges::find_if(save_.models, [](const ModelFile& m) { return m.index != kNone; });
    const Entries entries(readable == save_.models.end() ? none : save_.contents(readable->index));
    SHARDSCOPE_ASSIGN(TpPlacement tp, TpPlacement::read(entries, save_.options));
    for (const std::string& pattern : tp.refused())
        save_.inconsistent(
            Severity::warning,
            fmt::format("the pattern '{}' of universal_checkpoint_info is not used: it cannot be read as a "
                        "regular expression",
                        pattern));
    const bool concludes = save_.tpDegree > 1 && !tp.hasPatterns();
    const std::vector<TpShards> all = shardsOfAll(concludes && save_.stage != 3);
    tp.learnWidth(all);
    bool concluded = false;
    for (size_t p = 0; p < list_.size(); ++p) {
        if (std::ranges::none_of(all[p].shapes, [](const auto& shape) { return shape.has_value(); }))
            continue;
        list_[p].placement = tp.place(all[p]);
        noteRefused(list_[p]);
        concluded = concluded || !list_[p].buffer;
    }
    if (concludes && concluded)
        save_.inconsistent(Severity::info,
                           fmt::format("the files do not say along which dimension {} shard "
                                       "the parameters (no universal_checkpoint_info); it is concluded from "
                                       "values, shapes and names, and can be stated: {}",
                                       counted(save_.tpDegree, "tensor-parallel rank"),
                                       commandOption("tp-dim", "'GLOB=DIM'")));
    return {};
}

void Parameters::noteRefused(const Parameter& parameter) {
    if (parameter.placement.refused.empty()) return;
    save_.assembly.note(
        rule::layoutFused, Severity::error,
        fmt::format("universal_checkpoint_info says that it is several parts, each of which the "
                    "tensor-parallel ranks shard by itself, but {}: it cannot be put together",
                    parameter.placement.refused),
        {}, parameter.name, Note::Lacks::anything);
}

// ------------------------------------------------------------------ into the catalog

void Parameters::declare(const Path& path, DType dtype, Role role, uint32_t file,
                         const Parameter& parameter) {
    if (save_.contents(file).tensors.empty()) return;
    save_.assembly.addPiece(path, dtype, parameter.placement.whole, role,
                            {0, StoredPart::range(file, 0, 0, 0), {}, {}, {}});
}

void Parameters::addShard(const Path& path, DType dtype, Role role, const Parameter& parameter,
                          const StoredWeight& stored) {
    const Placement& placement = parameter.placement;
    save_.assembly.addBoxes(path, dtype, placement.whole, role, pieceOf(stored),
                            placement.shards[stored.tp].boxes(placement.whole));
}

void Parameters::addFlat(const Path& path, DType dtype, Role role, const Parameter& parameter,
                         const StoredWeight& stored, FlatRange range, int64_t at) {
    const DType held = save_.contents(stored.file).tensors[stored.tensor].dtype;
    TensorAssembly::Piece shard = pieceOf(stored);
    if (held != dtype) shard.part.storedAs = held;
    const Placement& placement = parameter.placement;
    save_.assembly.addBoxes(path, dtype, placement.whole, role, shard,
                            placement.shards[stored.tp].boxes(placement.whole, range), at - range.start);
}

void Parameters::addState(const std::string& name, const std::string& state, uint32_t file, uint32_t tensor,
                          uint32_t rank) {
    save_.assembly.addWhole(file, tensor, statePath(name, state), Role::optimizer, rank);
}

void Parameters::addStateObject(const std::string& name, const std::string& state, const Value& value,
                                uint32_t file, uint32_t rank) {
    if (stated_.emplace(name, state).second)
        save_.assembly.addObject(file, statePath(name, state), value, rank);
}

void Parameters::addWeights() {
    for (const Parameter& parameter : list_) {
        if (!parameter.dtype || !parameter.placed()) continue;
        const Path path{keyPart(parameter.name)};
        const Role role = parameter.buffer ? Role::buffer : Role::parameter;
        if (!parameter.placement.refused.empty() && !parameter.stored.empty())
            declare(path, *parameter.dtype, role, parameter.stored[0].file, parameter);
        for (const StoredWeight& stored : parameter.stored) {
            // One copy of a buffer stands for all.
            if (parameter.buffer && stored.tp > 0) continue;
            const StoredTensor& tensor = save_.contents(stored.file).tensors[stored.tensor];
            if (save_.stage == 3 && tensor.path[0].text == kFragments) {
                addFragment(parameter, stored);
            } else {
                addShard(path, *parameter.dtype, role, parameter, stored);
            }
        }
        // Of stage 3: known now, in the order of the model; the elements follow from the masters.
        if (parameter.stored.empty() && !save_.models.empty() && save_.modelOf(save_.models[0].mp))
            declare(path, *parameter.dtype, role, save_.modelOf(save_.models[0].mp)->index, parameter);
    }
}

// The piece of one rank, in the order of the ranks; the last ones have padding.
void Parameters::addFragment(const Parameter& parameter, const StoredWeight& stored) {
    const auto& shape = parameter.shapes[stored.tp];
    const auto model = std::ranges::find(save_.models, stored.file, &ModelFile::index);
    if (!shape || model == save_.models.end()) return;
    const int64_t total = elementCount(*shape), piece = (total + save_.dpWorld - 1) / save_.dpWorld;
    const int64_t begin = std::min(total, piece * model->dp), end = std::min(total, begin + piece);
    const TensorFile& file = save_.contents(stored.file);
    const Dims& held = file.tensors[stored.tensor].shape;
    if (held != Dims{piece}) {
        save_.assembly.wrong(fmt::format("its part on data-parallel rank {} has shape {}, of {} "
                                         "it would have {}",
                                         model->dp, formatDims(held), counted(save_.dpWorld, "rank"),
                                         counted(static_cast<uint64_t>(piece), "element")),
                             file.name, parameter.name);
        return;
    }
    addFlat({keyPart(parameter.name)}, *parameter.dtype, parameter.buffer ? Role::buffer : Role::parameter,
            parameter, stored, {begin, end}, 0);
}

// Names that share_params lists: in stage 3 nothing else says that they are tied.
void Parameters::addAliases() {
    for (const ModelFile& model : save_.models) {
        for (const auto& [alias, holder] : model.states.shared) {
            if (save_.stage == 3 || save_.tag.universal)
                save_.assembly.addAlias({keyPart(alias)}, {keyPart(holder)});
        }
    }
}

}  // namespace shardscope::deepspeed

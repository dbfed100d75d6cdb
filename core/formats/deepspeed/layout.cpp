// A universal checkpoint as DeepSpeed's load_universal takes it, in ZeRO 1 and 2 and in ZeRO 3: all are small
// torch.save files, one for each state of each parameter. checkpoint/universal_checkpoint.py, runtime/
// base_optimizer.py, runtime/zero/stage3.py, runtime/engine.py.
#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "base/names.h"
#include "base/option_words.h"
#include "base/text.h"
#include "encoding/pickle.h"
#include "formats/deepspeed/tp_placement.h"
#include "formats/entry_tree.h"
#include "formats/file_layout.h"
#include "formats/torch_save/writer.h"
#include "model/paths.h"
#include "model/value_make.h"

namespace shardscope::deepspeed {

namespace {

// A parameter with a directory of its own below `zero/`.
struct TrainedParameter {
    std::string name;
    TensorId weight = kNone;
    // The fp32 master weight: a state, or, without one, the float32 weight itself. kNone = the writer makes
    // one as a copy of the weight.
    TensorId master = kNone;
    bool isMoved = false;                                                 // the master is the weight itself
    std::vector<std::pair<std::string, TensorId>> files;                  // "fp32", "exp_avg", ..., "step"
    ObjectId step = kNone;                                                // the step, if it is an object
    TensorId shown() const { return weight != kNone ? weight : master; }  // a tensor of the parameter's shape
};

struct Contents {
    enum class Place : uint8_t { module, model, optimizer, state, none };
    struct Entry {
        Place place = Place::none;
        Path path;            // in the file of `place`
        uint32_t of = kNone;  // Place::state only: index into `trained`
    };
    std::vector<Entry> tensors, objects;  // in the order of the catalog
    std::vector<TrainedParameter> trained;
    std::unordered_map<std::string, uint32_t> byName;  // index into `trained`
    std::vector<LeftOut> cannot;
    bool hasGroups = false;  // the target has DeepSpeed's param_groups
};

constexpr size_t kLongestName = 255;  // of a directory, in bytes
constexpr const char* kStep = "step";
constexpr const char* kMaster = "fp32";
constexpr const char* kNumbered = "the optimizer numbers its parameters, and nothing says which one this is";

// Keys of the model states that this format writes itself.
bool isOwnKey(std::string_view key) {
    return isAmong(key, {"module", "buffer_names", "optimizer", "param_shapes", "frozen_param_shapes",
                         "frozen_param_fragments", "shared_params", "optimizer_state_dict"});
}

struct StateName {
    std::string parameter, state;
};

// "optimizer.state.NAME.exp_avg", nested or as one key.
std::optional<StateName> stateOf(const Path& path, std::string_view name) {
    constexpr std::string_view kPrefix = "optimizer.state.";
    if (path.size() == 4 && isKey(path, 0, "optimizer") && isKey(path, 1, "state"))
        return StateName{path[2].toString(), path[3].toString()};
    if (!name.starts_with(kPrefix)) return std::nullopt;
    const std::string_view rest = name.substr(kPrefix.size());
    const size_t dot = rest.rfind('.');
    if (dot == rest.npos) return std::nullopt;
    return StateName{std::string(rest.substr(0, dot)), std::string(rest.substr(dot + 1))};
}

// Dtypes whose values are all float32 values.
bool fitsFloat32(DType dtype) {
    return dtype == DType::float32 || dtype == DType::float16 || dtype == DType::bfloat16;
}

// Where an entry that is not a state goes, or why it is left out.
Contents::Entry placeOf(Path path, std::string_view name, std::string& why) {
    using Place = Contents::Place;
    if (path.empty()) path = {keyPart(name)};
    if (isKey(path, 0, "optimizer") && path.size() > 1) {
        if (isKey(path, 1, "param_groups") && path.size() > 2 && path[2].kind != PathPart::Kind::index)
            why = "it is of one parameter; DeepSpeed keeps such values for groups of parameters";
        if (path[1].kind == PathPart::Kind::key &&
            !isAmong(path[1].text,
                     {"param_groups", "loss_scaler", "dynamic_loss_scale", "overflow", "clip_grad",
                      "zero_stage", "ds_version", "partition_count", "cur_scale", "cur_iter", "scale_factor",
                      "scale_window", "last_overflow_iter", "optimizer_state_dict"}))
            why = "DeepSpeed's optimizers keep no such value";
        return {Place::optimizer, below(path), kNone};
    }
    if (name == "mp_world_size" || isKey(path, 0, "checkpoint_parallel_dimensions"))
        why = "what model-parallel ranks held is put together: 1 is written";
    if (isKey(path, 0, "client_state") && path.size() > 1) path = below(path);
    if (path[0].kind == PathPart::Kind::key && isOwnKey(path[0].text))
        why = fmt::format("'{}' is a key of DeepSpeed's own", path[0].text);
    return {Place::model, std::move(path), kNone};
}

// Whether the name is safe as a directory name: it cannot lead outside of the destination.
bool isDirectoryName(std::string_view name) {
    return !name.empty() && name != "." && name != ".." && name.size() <= kLongestName &&
           name.find('/') == name.npos && name.find('\0') == name.npos && name != "optimizer_state.pt";
}

// Why DeepSpeed cannot hold this state of a parameter, of which kNone is not there; empty = it can.
std::string whyNoState(const Catalog& target, TensorId t, const StateName& state, TensorId weight,
                       TensorId master) {
    if (master == kNone && weight == kNone)
        return isDigits(state.parameter)
                   ? kNumbered
                   : fmt::format("there is no weight '{}'", printable(state.parameter, kNameInMessage));
    if (master == kNone && !fitsFloat32(target.dtype(weight)))
        return fmt::format(
            "its weight is {}, whose values a float32 master cannot hold; {} '{}=float32' rounds it",
            dtypeName(target.dtype(weight)), option("dtype"), printable(state.parameter, kNameInMessage));
    if (state.state == kStep) return target.elements(t) == 1 ? "" : "a step is one number";
    if (!isDirectoryName(state.state + ".pt")) return "the name of this state cannot be a file's";
    if (std::ranges::equal(target.shape(t), target.shape(master != kNone ? master : weight))) return {};
    return "its shape is not its parameter's, and DeepSpeed loads no other states";
}

// Where an object belongs, and what that says of the rest; or `why` it belongs nowhere.
Contents::Entry entryOf(const ObjectInfo& object, ObjectId id, Contents& out, std::string& why) {
    using Place = Contents::Place;
    if (const auto state = stateOf(object.path, object.name)) {
        const auto known = out.byName.find(state->parameter);
        if (state->state != kStep) {
            why = "DeepSpeed loads no such state of a parameter but its step";
        } else if (known == out.byName.end()) {
            why = isDigits(state->parameter) ? kNumbered : "its parameter has no other state";
        } else {
            out.trained[known->second].step = id;
            return {Place::state, {}, known->second};
        }
        return {};
    }
    Contents::Entry entry = placeOf(object.path, object.name, why);
    if (object.value && object.value.kind() == ValueKind::integer &&
        object.value.graph->integer(object.value.node) == 1 && object.name == "mp_world_size")
        why.clear();
    if (entry.place == Place::optimizer && isKey(entry.path, 0, "param_groups") && why.empty())
        out.hasGroups = true;
    // The extra state of a module.
    if (object.path.size() <= 1 && object.name.ends_with("_extra_state"))
        entry = {Place::module, {keyPart(object.name)}, kNone};
    return entry;
}

Contents sortContents(const Catalog& target) {
    using Place = Contents::Place;
    Contents out;
    out.tensors.resize(target.tensorCount());
    out.objects.resize(target.objects().size());
    const auto refuse = [&](std::string_view name, std::string why) {
        out.cannot.push_back({std::string(name), std::move(why)});
    };
    const auto trained = [&](const std::string& name) -> uint32_t {
        const auto [it, fresh] = out.byName.try_emplace(name, static_cast<uint32_t>(out.trained.size()));
        if (fresh) out.trained.push_back({name, target.find(name), kNone, false, {}, kNone});
        return it->second;
    };
    // The states; masters first, which have the shape of the parameter.
    std::vector<std::pair<TensorId, StateName>> states;
    for (TensorId t = 0; t < target.tensorCount(); ++t) {
        if (std::string why = torch_save::whyNoFileHolds(target, t); !why.empty()) {
            refuse(target.name(t), std::move(why));
            continue;
        }
        if (auto state = stateOf(target.path(t), target.name(t))) {
            if (state->state == kMaster) out.trained[trained(state->parameter)].master = t;
            states.emplace_back(t, std::move(*state));
        }
    }
    const bool mastersOnly =
        std::ranges::all_of(states, [](const auto& state) { return state.second.state == kMaster; });
    for (auto& [t, state] : states) {
        const TensorId weight = target.find(state.parameter);
        const auto known = out.byName.find(state.parameter);
        const TensorId master = known == out.byName.end() ? kNone : out.trained[known->second].master;
        std::string why = whyNoState(target, t, state, weight, master);
        if (!why.empty()) {
            refuse(target.name(t), std::move(why));
            continue;
        }
        const uint32_t p = trained(state.parameter);
        out.trained[p].files.emplace_back(state.state, t);
        out.tensors[t] = {Place::state, {}, p};
    }
    for (ObjectId o = 0; o < target.objects().size(); ++o) {
        const ObjectInfo& object = target.objects()[o];
        std::string why;
        Contents::Entry entry = entryOf(object, o, out, why);
        if (why.empty()) why = whyNotPickled(object.value);
        if (!why.empty()) {
            refuse(object.name, std::move(why));
            continue;
        }
        out.objects[o] = std::move(entry);
    }
    // The weights, and tensors of other parts.
    for (TensorId t = 0; t < target.tensorCount(); ++t) {
        if (out.tensors[t].place == Place::state || stateOf(target.path(t), target.name(t)) ||
            !torch_save::whyNoFileHolds(target, t).empty())
            continue;
        const std::string name(target.name(t));
        const Path path = target.path(t);
        const bool structured =
            isKey(path, 0, "optimizer") || isKey(path, 0, "client_state") || isKey(path, 0, "lr_scheduler");
        if (path.size() > 1 && structured && !out.byName.contains(name)) {
            std::string why;
            // The loader takes no other tensors of an optimizer.
            if (isKey(path, 0, "optimizer") && !isKey(path, 1, "param_groups") &&
                !isKey(path, 1, "optimizer_state_dict"))
                why = "which parameter's state this is, its name does not say";
            else
                out.tensors[t] = placeOf(path, name, why);
            if (!why.empty()) refuse(name, std::move(why));
            continue;
        }
        if (target.role(t) == Role::optimizer) {
            refuse(name, "which parameter's state this is, its name does not say");
            continue;
        }
        // Without a state that only training makes, all weights are taken for trained.
        if (mastersOnly && target.role(t) == Role::parameter && target.aliasOf(t) == kNone &&
            fitsFloat32(target.dtype(t)))
            trained(name);
        out.tensors[t] = {Place::module, {keyPart(name)}, kNone};
    }
    for (uint32_t p = 0; p < out.trained.size(); ++p) {
        TrainedParameter& parameter = out.trained[p];
        if (parameter.weight != kNone && parameter.master == kNone &&
            target.dtype(parameter.weight) == DType::float32) {
            parameter.master = parameter.weight;
            parameter.isMoved = true;
            parameter.files.insert(parameter.files.begin(), {kMaster, parameter.weight});
            out.tensors[parameter.weight] = {Place::state, {}, p};
        }
    }
    return out;
}

using torch_save::ObjectFile;

constexpr const char* kVersion = "0.19.8";  // whose files these are, where the source does not say

enum File : FileId { kTracker, kModel, kModelOfStage3, kOptimizer, kFirstState };

Value emptyDict() {
    return makeDictOf({});
}

// The content of one file, as it is put together.
class ContentBuilder {
  public:
    // `of`: the tensor of the wanted catalog; kNone = an empty one that says a dtype.
    Status tensor(const Path& path, DType dtype, DimSpan shape, TensorId of, uint32_t aliasOf = kNone) {
        TensorInfo info;
        info.name = pathName(path);
        info.path = path;
        info.dtype = dtype;
        info.shape.assign(shape.begin(), shape.end());
        info.aliasOf = aliasOf;
        SHARDSCOPE_TRY(builder_.addTensor(info));
        of_.push_back(of);
        return builder_.addWhole(0, kNone, 0, 0);
    }
    void object(Path path, Value value) {
        ObjectInfo info;
        info.name = pathName(path);
        info.path = std::move(path);
        info.value = std::move(value);
        builder_.addObject(std::move(info));
    }
    uint32_t count() const { return static_cast<uint32_t>(of_.size()); }
    const std::vector<TensorId>& of() const { return of_; }
    Catalog finish() && { return std::move(builder_).finish(); }

  private:
    CatalogBuilder builder_{"deepspeed", "universal", "shardscope"};
    std::vector<TensorId> of_;
};

class UniversalLayout final : public FileLayout {
  public:
    explicit UniversalLayout(const Catalog& target) : FileLayout(target), contents_(sortContents(target)) {
        needsCrc = true;
    }

    Status plan() {
        // Where parallel ranks of the target cut what those of the source had put together.
        SHARDSCOPE_ASSIGN(cuts_, TpPlacement::read(Entries(target_.objects()), {}));
        if (!contents_.cannot.empty())
            return makeError(ErrorCode::impossible, contents_.cannot[0].why)
                .ofTensor(contents_.cannot[0].name);
        for (const TrainedParameter& parameter : contents_.trained) {
            if (!isDirectoryName(parameter.name))
                return makeError(ErrorCode::impossible,
                                 fmt::format("each trained parameter has a directory of its name, and no "
                                             "directory can have this one; {} gives it another",
                                             option("rename")))
                    .ofTensor(parameter.name);
        }
        std::ranges::fill(chunkFile, kNone);
        readSteps();
        tag_ = steps_ ? fmt::format("global_step{}_universal", *steps_) : "universal";
        files.push_back({"latest_universal", tag_.size(), true});
        SHARDSCOPE_TRY(addModelStates(kModel, "mp_rank_00_model_states.pt"));
        SHARDSCOPE_TRY(addModelStates(kModelOfStage3, "zero_pp_rank_0_mp_rank_00_model_states.pt"));
        SHARDSCOPE_TRY(addOptimizer());
        for (const TrainedParameter& parameter : contents_.trained)
            SHARDSCOPE_TRY(addStates(parameter));
        // Other names of weights that are masters now.
        for (TensorId t = 0; t < target_.tensorCount(); ++t) {
            for (ChunkId c = target_.firstChunk(t); c < target_.endChunk(t); ++c) {
                if (chunkFile[c] != kNone) continue;
                const TensorId of = target_.aliasOf(t);
                if (of == kNone || chunkFile[target_.firstChunk(of)] == kNone)
                    return makeError(ErrorCode::internal, "it has no place").ofTensor(target_.name(t));
                chunkFile[c] = chunkFile[target_.firstChunk(of)];
                chunkOffset[c] = chunkOffset[target_.firstChunk(of)];
            }
        }
        return {};
    }

    Status fileLiterals(FileId file, std::span<const uint32_t> chunkCrcs,
                        const LiteralSink& sink) const override {
        if (file == kTracker) return writeText(file, tag_, sink);
        const auto write = [&](const Whole& whole) {
            return whole.file.literals(
                [&](TensorId t) {
                    const TensorId of = whole.of[t];
                    return of == kNone || target_.firstChunk(of) == target_.endChunk(of)
                               ? 0
                               : chunkCrcs[target_.firstChunk(of)];
                },
                [&](uint64_t at, std::span<const std::byte> bytes) { return sink(file, at, bytes); });
        };
        if (file < kFirstState) return write(*whole_[file - kModel]);
        const StateFile& state = states_[file - kFirstState];
        SHARDSCOPE_ASSIGN(const Whole whole, stateFile(state));
        return write(whole);
    }

  private:
    struct Whole {
        ObjectFile file{"archive"};
        std::vector<TensorId> of;  // of each tensor in it
    };
    // Made twice rather than kept: there are many.
    struct StateFile {
        uint32_t parameter = kNone;
        TensorId tensor = kNone;
        ObjectId object = kNone;
        bool isStep = false;
    };

    Result<Whole> finish(ContentBuilder content) const {
        Whole whole;
        whole.of = content.of();
        const Catalog catalog = std::move(content).finish();
        std::vector<LeftOut> notes;  // of strange keys
        SHARDSCOPE_TRY(whole.file.build(catalog, notes));
        return whole;
    }

    Status add(std::string name, const Whole& whole) {
        const auto id = static_cast<FileId>(files.size());
        files.push_back({tag_ + "/" + std::move(name), whole.file.size(), false});
        for (TensorId t = 0; t < whole.of.size(); ++t) {
            const TensorId of = whole.of[t];
            if (of == kNone) continue;
            SHARDSCOPE_TRY(checkWhole(of, "universal checkpoints hold whole tensors"));
            for (ChunkId c = target_.firstChunk(of); c < target_.endChunk(of); ++c) {
                chunkFile[c] = id;
                chunkOffset[c] = whole.file.offsetOf(t);
            }
        }
        return {};
    }
    Status addKept(std::string name, ContentBuilder content) {
        SHARDSCOPE_ASSIGN(Whole whole, finish(std::move(content)));
        return add(std::move(name), *whole_.emplace_back(std::make_unique<Whole>(std::move(whole))));
    }

    const ObjectInfo* objectAt(std::string_view name) const {
        for (const ObjectInfo& object : target_.objects())
            if (object.name == name) return &object;
        return nullptr;
    }

    void readSteps() {
        const ObjectInfo* steps = objectAt("global_steps");
        if (steps && steps->value && steps->value.kind() == ValueKind::integer)
            steps_ = steps->value.graph->integer(steps->value.node);
        if (!steps_)
            changed.push_back({"global_steps", "the source does not say it; DeepSpeed will count from 0"});
    }

    // `param_shapes`: one group with all parameters that are trained.
    Value shapes() const {
        ValueGraph graph;
        const NodeId size = graph.addGlobal("torch", "Size"), group = graph.addContainer(ValueKind::dict);
        for (const TrainedParameter& parameter : contents_.trained) {
            std::vector<NodeId> dims;
            for (int64_t dim : target_.shape(parameter.shown()))
                dims.push_back(graph.addInteger(dim));
            ValueObject shape;
            shape.callable = size;
            const NodeId tuple = graph.addContainer(ValueKind::tuple, dims);
            shape.arguments = graph.addContainer(ValueKind::tuple, {tuple});
            const NodeId name = graph.addText(ValueKind::text, parameter.name);
            const NodeId made = graph.addObject(shape);
            graph.append(group, name);
            graph.append(group, made);
        }
        const NodeId list = graph.addContainer(ValueKind::list, {group});
        return makeValue(std::move(graph), list);
    }

    // The weights that are not masters, and what the engine keeps; in stage 3 DeepSpeed looks for a file of
    // another name, and takes no weights from it.
    Status addModelStates(FileId id, std::string name) {
        using Place = Contents::Place;
        const bool withTensors = id == kModel;
        ContentBuilder content;
        ValueGraph graph;
        const NodeId buffers = graph.addContainer(ValueKind::list);
        ValueGraph aliases;
        const NodeId shared = aliases.addContainer(ValueKind::dict);
        std::vector<uint32_t> at(target_.tensorCount(), kNone);
        bool hasModule = false;
        const auto inModule = [](const Path& path) { return joined({"module"}, path); };
        for (TensorId t = 0; t < target_.tensorCount(); ++t) {
            const Contents::Entry& entry = contents_.tensors[t];
            const std::string_view tensor = target_.name(t);
            if (entry.place == Place::state && contents_.trained[entry.of].weight == t && withTensors) {
                // As stage 3 does: an empty tensor that says the dtype.
                SHARDSCOPE_TRY(content.tensor(inModule({keyPart(tensor)}), target_.dtype(t), Dims{0}, kNone));
                hasModule = true;
                changed.push_back(
                    {std::string(tensor), "there is no fp32 master of it: it is written as the master"});
            }
            if (entry.place != Place::module && (entry.place != Place::model || !withTensors)) continue;
            const TensorId of = target_.aliasOf(t);
            const bool trained = contents_.byName.contains(std::string(tensor));
            if (entry.place == Place::module && target_.role(t) == Role::buffer)
                graph.append(buffers, graph.addText(ValueKind::text, tensor));
            if (entry.place == Place::module && of != kNone) {
                const NodeId alias = aliases.addText(ValueKind::text, tensor);
                const NodeId holder = aliases.addText(ValueKind::text, target_.name(of));
                aliases.append(shared, alias);
                aliases.append(shared, holder);
                if (contents_.tensors[of].place == Place::state) continue;
            }
            if (!withTensors) continue;
            if (entry.place == Place::module && !trained && of == kNone)
                changed.push_back(
                    {std::string(tensor),
                     "not trained: it is in the model states, but load_universal leaves such tensors "
                     "as the model that loads them has them"});
            if (of != kNone && at[of] == kNone)
                return makeError(ErrorCode::internal, "what it is a name of has no place").ofTensor(tensor);
            at[t] = content.count();
            SHARDSCOPE_TRY(content.tensor(entry.place == Place::module ? inModule(entry.path) : entry.path,
                                          target_.dtype(t), target_.shape(t), t,
                                          of == kNone ? kNone : at[of]));
            hasModule = hasModule || entry.place == Place::module;
        }
        for (ObjectId o = 0; o < target_.objects().size(); ++o) {
            const Contents::Entry& entry = contents_.objects[o];
            if (entry.place == Place::module && withTensors) {
                content.object(inModule(entry.path), target_.objects()[o].value);
                hasModule = true;
            }
        }
        if (!hasModule) content.object({keyPart("module")}, emptyDict());
        content.object({keyPart("buffer_names")}, makeValue(std::move(graph), buffers));
        content.object({keyPart("optimizer")}, noneValue());
        content.object({keyPart("param_shapes")}, shapes());
        content.object({keyPart("frozen_param_shapes")}, noneValue());
        content.object({keyPart("frozen_param_fragments")}, noneValue());
        content.object({keyPart("shared_params")}, makeValue(std::move(aliases), shared));
        std::vector<std::string> there;
        for (ObjectId o = 0; o < target_.objects().size(); ++o) {
            const Contents::Entry& entry = contents_.objects[o];
            if (entry.place != Place::model) continue;
            const ObjectInfo& object = target_.objects()[o];
            there.push_back(entry.path[0].text);
            content.object(entry.path, object.value);
        }
        const auto orElse = [&](const char* key, Value value) {
            if (std::ranges::find(there, key) == there.end())
                content.object({keyPart(key)}, std::move(value));
        };
        orElse("lr_scheduler", noneValue());
        orElse("global_steps", makeIntegerValue(0));
        orElse("skipped_steps", makeIntegerValue(0));
        orElse("dp_world_size", makeIntegerValue(1));
        orElse("mp_world_size", makeIntegerValue(1));
        orElse("ds_version", makeTextValue(kVersion));
        return addKept(std::move(name), std::move(content));
    }

    Status addOptimizer() {
        using Place = Contents::Place;
        ContentBuilder content;
        for (TensorId t = 0; t < target_.tensorCount(); ++t) {
            const Contents::Entry& entry = contents_.tensors[t];
            if (entry.place == Place::optimizer)
                SHARDSCOPE_TRY(content.tensor(entry.path, target_.dtype(t), target_.shape(t), t));
        }
        const Path state{keyPart("optimizer_state_dict"), keyPart("state")};
        bool version = false;
        for (ObjectId o = 0; o < target_.objects().size(); ++o) {
            const Contents::Entry& entry = contents_.objects[o];
            if (entry.place != Place::optimizer) continue;
            const Value& value = target_.objects()[o].value;
            content.object(entry.path, value);
            version = version || entry.path[0].text == "ds_version";
            if (entry.path[0].text != "param_groups") continue;
            content.object(joined({"optimizer_state_dict"}, entry.path), value);
        }
        if (!version) {
            const ObjectInfo* engine = objectAt("ds_version");
            content.object({keyPart("ds_version")}, engine ? engine->value : makeTextValue(kVersion));
        }
        if (!contents_.hasGroups) {
            // The loader goes through the groups of both: there are never more than parameters.
            const Value value = makeListOf(std::vector<Value>(contents_.trained.size(), emptyDict()));
            content.object({keyPart("param_groups")}, value);
            content.object({state[0], keyPart("param_groups")}, value);
            changed.push_back(
                {"optimizer.param_groups",
                 "the source has no groups as DeepSpeed has them: learning rate, weight decay and the "
                 "like are those of the run that loads this"});
        }
        const auto first =
            std::ranges::find_if(contents_.trained, [](const auto& p) { return p.step != kNone; });
        const bool copied = target_.find("optimizer.optimizer_state_dict.state.0.step") != kNone;
        if (!copied && first != contents_.trained.end()) {
            content.object({state[0], state[1], numberPart(0), keyPart("step")},
                           target_.objects()[first->step].value);
        } else if (!copied) {
            content.object(state, emptyDict());
        }
        return addKept("zero/optimizer_state.pt", std::move(content));
    }

    Status addStates(const TrainedParameter& parameter) {
        const uint32_t p = contents_.byName.at(parameter.name);
        if (parameter.master == kNone)
            return makeError(ErrorCode::internal, "it has no master").ofTensor(parameter.name);
        if (target_.shape(parameter.shown()).empty())
            changed.push_back(
                {parameter.name, "its states have the shape [1]: DeepSpeed loads none without dimensions"});
        const auto addOne = [&](const std::string& name, const StateFile& state) -> Status {
            states_.push_back(state);
            SHARDSCOPE_ASSIGN(const Whole whole, stateFile(state));
            return add(fmt::format("zero/{}/{}.pt", parameter.name, name), whole);
        };
        for (const auto& [name, tensor] : parameter.files)
            SHARDSCOPE_TRY(addOne(name, {p, tensor, kNone, name == "step"}));
        if (parameter.step != kNone) SHARDSCOPE_TRY(addOne("step", {p, kNone, parameter.step, true}));
        return {};
    }

    Result<Whole> stateFile(const StateFile& state) const {
        ContentBuilder content;
        if (state.tensor == kNone) {
            content.object({}, target_.objects()[state.object].value);
            return finish(std::move(content));
        }
        const DimSpan shape = target_.shape(state.tensor);
        const DType dtype = target_.dtype(state.tensor);
        if (state.isStep) {
            SHARDSCOPE_TRY(content.tensor({}, dtype, shape, state.tensor));
            return finish(std::move(content));
        }
        const TpPlacement::Pattern cut = cuts_.patternOf(contents_.trained[state.parameter].name);
        const Dims one{1};
        SHARDSCOPE_TRY(
            content.tensor({keyPart("param")}, dtype, shape.empty() ? DimSpan(one) : shape, state.tensor));
        if (cut.cuts) content.object({keyPart("cat_dim")}, makeIntegerValue(cut.dim));
        if (cut.parts > 1) content.object({keyPart("param_n_sub_params")}, makeIntegerValue(cut.parts));
        if (cut.isVocabulary)
            content.object({keyPart("vocab_tensor")},
                           makeValueBy([](ValueGraph& graph) { return graph.addBoolean(true); }));
        return finish(std::move(content));
    }

    const Contents contents_;
    TpPlacement cuts_;
    std::optional<int64_t> steps_;
    std::string tag_;
    std::vector<std::unique_ptr<Whole>> whole_;  // of the files between kTracker and kFirstState
    std::vector<StateFile> states_;              // of the files from kFirstState
};

}  // namespace

std::optional<Path> targetPath(const Path& path, bool optimizer) {
    if (path.size() < 2) return std::nullopt;
    if (isKey(path, 0, "model") || isKey(path, 0, "module")) return below(path);
    const bool bare = optimizer && (isKey(path, 0, "state") || isKey(path, 0, "param_groups"));
    if (!bare && !isKey(path, 0, "optim")) return std::nullopt;
    return joined({"optimizer"}, path, bare ? 0 : 1);
}

std::vector<TargetCopy> targetCopies(const Catalog& target, const WriteOptions&) {
    using Place = Contents::Place;
    const Contents contents = sortContents(target);
    std::vector<TargetCopy> copies;
    for (const TrainedParameter& parameter : contents.trained) {
        if (parameter.master != kNone || parameter.weight == kNone) continue;
        copies.push_back(
            {statePath(parameter.name, kMaster), parameter.weight, DType::float32, Role::optimizer,
             fmt::format("'{}' as float32, exactly: there is no fp32 master of it", parameter.name)});
    }
    // Stage 3 takes the step of all parameters from the file of the optimizer.
    const Path once{keyPart("optimizer"), keyPart("optimizer_state_dict"), keyPart("state"), numberPart(0),
                    keyPart(kStep)};
    for (const TrainedParameter& parameter : contents.trained) {
        if (target.find(pathName(once)) != kNone) break;
        const auto step =
            std::ranges::find(parameter.files, kStep, [](const auto& file) { return file.first; });
        if (step == parameter.files.end()) continue;
        copies.push_back({once, step->second, target.dtype(step->second), Role::optimizer,
                          "the step once more, where ZeRO 3 looks for it"});
        break;
    }
    // Two names share a storage in one file only.
    for (TensorId t = 0; t < target.tensorCount(); ++t) {
        const TensorId of = target.aliasOf(t);
        if (of == kNone) continue;
        const auto& mine = contents.tensors[t];
        const auto& other = contents.tensors[of];
        const bool moved = other.place == Place::state && contents.trained[other.of].isMoved;
        if (mine.place == Place::state ||
            (mine.place != other.place && !(mine.place == Place::module && moved)))
            copies.push_back({{}, t, target.dtype(t), target.role(t), {}});
    }
    return copies;
}

std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions&) {
    return sortContents(target).cannot;
}

Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions&) {
    return planned<UniversalLayout>(target);
}

}  // namespace shardscope::deepspeed

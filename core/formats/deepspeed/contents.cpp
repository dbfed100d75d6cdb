#include "formats/deepspeed/contents.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/option_words.h"
#include "base/text.h"
#include "encoding/pickle.h"
#include "formats/entry_tree.h"
#include "formats/paths.h"
#include "formats/torch_save/writer.h"
#include "formats/tp_rule.h"

namespace shardscope::deepspeed {

namespace {

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

bool isDigits(std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
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

}  // namespace

bool isDirectoryName(std::string_view name) {
    return !name.empty() && name != "." && name != ".." && name.size() <= kLongestName &&
           name.find('/') == name.npos && name.find('\0') == name.npos && name != "optimizer_state.pt";
}

std::optional<Path> targetPath(const Path& path, bool optimizer) {
    if (path.size() < 2) return std::nullopt;
    if (isKey(path, 0, "model") || isKey(path, 0, "module")) return below(path);
    const bool bare = optimizer && (isKey(path, 0, "state") || isKey(path, 0, "param_groups"));
    if (!bare && !isKey(path, 0, "optim")) return std::nullopt;
    return joined({"optimizer"}, path, bare ? 0 : 1);
}

namespace {

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

}  // namespace

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

std::vector<TargetCopy> targetCopies(const Catalog& target, const WriteOptions&) {
    using Place = Contents::Place;
    const Contents contents = sortContents(target);
    std::vector<TargetCopy> copies;
    for (const TrainedParameter& parameter : contents.trained) {
        if (parameter.master != kNone || parameter.weight == kNone) continue;
        copies.push_back(
            {{keyPart("optimizer"), keyPart("state"), keyPart(parameter.name), keyPart(kMaster)},
             parameter.weight,
             DType::float32,
             Role::optimizer,
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

}  // namespace shardscope::deepspeed

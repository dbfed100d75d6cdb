// Universal checkpoints: the merged states of each parameter in a directory of its own. checkpoint/
// ds_to_universal.py, checkpoint/universal_checkpoint.py.
#include <algorithm>

#include <fmt/format.h>

#include "base/rule.h"
#include "formats/deepspeed/opener.h"

namespace shardscope::deepspeed {

namespace {

constexpr int kMostLevels = 16;  // of names with slashes

struct ParameterFiles {
    std::string name;
    std::vector<std::string> states;  // of fp32.pt: "fp32"
};

// The directories below `zero/` that hold files of a parameter.
void findParameters(const Directory& directory, const std::string& root, const std::string& name, int levels,
                    std::vector<ParameterFiles>& found) {
    const auto entries = directory.list(root + name);
    if (!entries.ok()) return;
    ParameterFiles here{name.empty() ? "" : name.substr(1), {}};
    for (const DirectoryEntry& entry : *entries) {
        if (entry.kind == DirectoryEntry::Kind::directory && levels > 0)
            findParameters(directory, root, name + "/" + entry.name, levels - 1, found);
        if (entry.kind == DirectoryEntry::Kind::file && entry.name.ends_with(".pt") && !name.empty())
            here.states.push_back(entry.name.substr(0, entry.name.size() - 3));
    }
    std::ranges::sort(here.states);
    if (!here.states.empty()) found.push_back(std::move(here));
}

// What tells one kind of optimizer from another: Adam's moments are one, any other state one by itself.
std::set<std::string> kindsOf(const std::vector<std::string>& states) {
    std::set<std::string> kinds;
    for (const std::string& state : states) {
        if (state == "fp32" || state == "step") continue;
        kinds.insert(state.starts_with("exp_avg") || state.starts_with("max_exp_avg") ? "adam" : state);
    }
    return kinds;
}

// The states that each parameter should have: those of all that the same kind of optimizer trained. Groups
// may have different ones (Muon for matrices, Adam for the rest).
class ExpectedStates {
  public:
    void add(const std::vector<std::string>& states) {
        kinds_[kindsOf(states)].insert(states.begin(), states.end());
    }
    std::set<std::string> of(const std::vector<std::string>& states) const {
        std::set<std::string> expected{"fp32"};
        const auto own = kinds_.find(kindsOf(states));
        const bool some = own != kinds_.end() && !own->first.empty();
        if (some || others() <= 1) {
            for (const auto& [kind, all] : kinds_)
                if (!some || kind == own->first) expected.insert(all.begin(), all.end());
        }
        return expected;
    }
    // Whether it has no state of an optimizer, and those of others do not say which ones it should have.
    bool isUnclear(const std::vector<std::string>& states) const {
        return kindsOf(states).empty() && others() > 1;
    }

  private:
    int64_t others() const {
        return std::ranges::count_if(kinds_, [](const auto& kind) { return !kind.first.empty(); });
    }

    std::map<std::set<std::string>, std::set<std::string>> kinds_;
};

}  // namespace

// One file of a parameter's state.
void Opener::addUniversalState(const std::string& name, const std::string& state, const std::string& path,
                               uint32_t index, std::optional<DType> modelDtype) {
    const TensorFile& file = contents(index);
    for (const StoredObject& object : file.objects) {
        if (object.path.empty() || state == "step") addStateObject(name, state, object.value, index, 0);
    }
    // A bare tensor, or the "param" of a dictionary.
    const auto tensor = std::ranges::find_if(file.tensors, [](const StoredTensor& t) {
        return t.special == kNone && (t.path.empty() || (t.path.size() == 1 && t.path[0].text == "param"));
    });
    if (tensor == file.tensors.end()) {
        if (file.objects.empty())
            assembly_.note(rule::metaInconsistent, Severity::error, "the file holds no tensor", path, name,
                           Note::Lacks::optimizerState);
        return;
    }
    const auto t = static_cast<uint32_t>(tensor - file.tensors.begin());
    Parameter& parameter = parameters_[parameterOf(name)];
    // From stage 3 they are flat, and what has no dimensions may have one: the shape is in param_shapes.
    const bool reshaped = !parameter.placement.shards.empty() && tensor->shape != parameter.placement.whole &&
                          elementCount(tensor->shape) == elementCount(parameter.placement.whole);
    if ((stage_ != 3 && !reshaped) || state == "step") {
        addState(name, state, index, t, 0);
        // Layer files of a pipeline are not copied: its weights are what the masters round to.
        const std::optional<DType> dtype = parameter.dtype ? parameter.dtype : modelDtype;
        if (state != "fp32" || !parameter.stored.empty() || !dtype) return;
        TensorAssembly::Piece weight;
        weight.part = StoredPart::whole(index, t);
        if (*dtype != tensor->dtype) weight.part.storedAs = tensor->dtype;
        assembly_.addPiece({keyPart(name)}, *dtype, tensor->shape, Role::parameter, std::move(weight));
        return;
    }
    if (parameter.placement.shards.empty()) return;
    const int64_t elements = elementCount(parameter.placement.whole);
    if (elementCount(tensor->shape) != elements) {
        assembly_.note(rule::metaInconsistent, Severity::error,
                       fmt::format("it has {} elements, by param_shapes it has the shape {}",
                                   elementCount(tensor->shape), formatDims(parameter.placement.whole)),
                       path, name, Note::Lacks::anything);
        return;
    }
    TensorAssembly::Piece piece;
    piece.part = StoredPart::range(index, t, 0, elements);
    assembly_.addPiece(statePath(name, state), tensor->dtype, parameter.placement.whole, Role::optimizer,
                       piece);
    if (state != "fp32" || !parameter.dtype || (stage_ != 3 && !parameter.stored.empty())) return;
    if (*parameter.dtype != tensor->dtype) piece.part.storedAs = tensor->dtype;
    assembly_.addPiece({keyPart(name)}, *parameter.dtype, parameter.placement.whole, Role::parameter,
                       std::move(piece));
}

// What is kept once for all parameters.
void Opener::addUniversalStep(uint32_t index, const std::vector<std::string>& trained, bool eachHasStep) {
    const TensorFile& file = contents(index);
    // Stage 3 keeps the step here, once for each sub-group.
    for (uint32_t t = 0; t < file.tensors.size(); ++t) {
        if (file.tensors[t].name != "optimizer_state_dict.state.0.step") continue;
        // Once more, in a checkpoint for all stages.
        if (eachHasStep) {
            Path path{keyPart("optimizer")};
            path.insert(path.end(), file.tensors[t].path.begin(), file.tensors[t].path.end());
            assembly_.addWhole(index, t, std::move(path), Role::optimizer, 0);
            continue;
        }
        for (const std::string& name : trained)
            addState(name, "step", index, t, 0);
    }
    for (const StoredObject& object : file.objects) {
        if (object.name == "optimizer_state_dict.state.0.step" && !eachHasStep) {
            for (const std::string& name : trained)
                addStateObject(name, "step", object.value, index, 0);
        }
        const std::string& key = object.path.empty() ? object.name : object.path[0].text;
        if (key == "loss_scaler" || key == "dynamic_loss_scale" || key == "overflow" || key == "clip_grad" ||
            key == "zero_stage" || key == "param_groups" || key == "ds_version") {
            Path path{keyPart("optimizer")};
            path.insert(path.end(), object.path.begin(), object.path.end());
            const auto stage =
                key == "zero_stage" ? integerOf(*object.value.graph, object.value.node) : std::nullopt;
            assembly_.addObject(index, std::move(path), stage ? makeIntegerValue(*stage) : object.value, 0);
        }
    }
}

Status Opener::addUniversal() {
    const std::string root = tag_.prefix + "zero";
    std::vector<ParameterFiles> found;
    findParameters(*source_.directory, root, "", kMostLevels, found);
    std::ranges::sort(found, {}, &ParameterFiles::name);
    // What was trained; for other weights and buffers there are copies in float32, which `module` holds as
    // they are.
    std::vector<std::string> trained;
    std::set<std::string> listed;
    for (const ModelFile& model : models_) {
        for (const auto& group : model.states.groups) {
            for (const NamedShape& named : group)
                if (listed.insert(named.name).second) trained.push_back(named.name);
        }
    }
    std::vector<std::pair<std::string, uint32_t>> names;
    std::map<std::string, const ParameterFiles*> byName;
    size_t copies = 0;
    for (const ParameterFiles& parameter : found) {
        if (!listed.empty() && !listed.contains(parameter.name)) {
            copies += !parameter.states.empty();
            for (const std::string& state : parameter.states) {
                const std::string name = fmt::format("{}/{}/{}.pt", root, parameter.name, state);
                if (const auto entry = source_.directory->stat(name); entry.ok())
                    assembly_.addUnused({name, DirectoryEntry::Kind::file, entry->size}, kNone);
            }
            continue;
        }
        if (listed.empty()) trained.push_back(parameter.name);
        byName[parameter.name] = &parameter;
        for (const std::string& state : parameter.states)
            names.emplace_back(fmt::format("{}/{}/{}.pt", root, parameter.name, state), 0);
    }
    if (copies > 0)
        assembly_.note(
            rule::metaInconsistent, Severity::info,
            fmt::format(
                "for {} weights and buffers that are not trained 'zero' holds copies in float32; they "
                "are read from the model states, with their own dtype",
                copies));
    const std::string about = root + "/optimizer_state.pt";
    SHARDSCOPE_ASSIGN(const uint32_t aboutIndex, assembly_.addFile(about, 0));
    SHARDSCOPE_ASSIGN(const std::vector<uint32_t> indices, assembly_.addFiles(names));
    std::map<std::string, uint32_t> indexOf;
    std::set<std::string> states;  // of any parameter
    ExpectedStates expected;
    for (size_t i = 0; i < names.size(); ++i)
        indexOf[names[i].first] = indices[i];
    for (const auto& [name, parameter] : byName) {
        states.insert(parameter->states.begin(), parameter->states.end());
        expected.add(parameter->states);
    }
    std::optional<DType> modelDtype;
    if (!models_.empty() && models_[0].index != kNone) {
        const Entries entries(contents(models_[0].index));
        modelDtype = entries.isTrue("ds_config.bf16.enabled")   ? DType::bfloat16
                     : entries.isTrue("ds_config.fp16.enabled") ? DType::float16
                                                                : DType::float32;
    }
    for (const std::string& name : trained) {
        (void)parameterOf(name);  // whatever there is of it
        const auto files = byName.find(name);
        const auto held = files == byName.end() ? std::vector<std::string>() : files->second->states;
        if (expected.isUnclear(held))
            assembly_.addMissing(fmt::format("{}/{}/*.pt", root, name), 0, Severity::error,
                                 "no state of the optimizer is here of this trained parameter",
                                 Note::Lacks::optimizerState);
        for (const std::string& state : expected.of(held)) {
            const std::string path = fmt::format("{}/{}/{}.pt", root, name, state);
            const auto index = indexOf.find(path);
            if (index == indexOf.end()) {
                assembly_.addMissing(path, 0, Severity::error,
                                     fmt::format("'{}' of a trained parameter is missing", state),
                                     Note::Lacks::optimizerState);
                continue;
            }
            if (index->second == kNone) continue;
            addUniversalState(name, state, path, index->second, modelDtype);
        }
    }
    if (aboutIndex != kNone) addUniversalStep(aboutIndex, trained, states.contains("step"));
    if (const auto left = source_.directory->list(tag_.prefix + "tmp"); left.ok() && !left->empty())
        assembly_.note(
            rule::fileStale, Severity::warning,
            "'tmp' holds fragments of parameters: ds_to_universal was interrupted, or did not clean up",
            tag_.prefix + "tmp");
    return {};
}

}  // namespace shardscope::deepspeed

// Universal checkpoints: the merged states of each parameter in a directory of its own. checkpoint/
// ds_to_universal.py, checkpoint/universal_checkpoint.py.
#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/names.h"
#include "base/units.h"
#include "formats/deepspeed/parameters.h"
#include "model/paths.h"
#include "storage/files_below.h"

namespace shardscope::deepspeed {

namespace {

constexpr int kMostLevels = 16;  // of names with slashes

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

class Universal {
  public:
    Universal(Save& save, Parameters& parameters)
        : save_(save), parameters_(parameters), root_(save.tag.prefix + "zero") {}

    Status add();

  private:
    std::string pathOf(const std::string& name, std::string_view state) const {
        return fmt::format("{}/{}/{}.pt", root_, name, state);
    }
    Status listTrained();
    void leaveOut(const std::string& name, const std::vector<std::string>& states);
    Status readStates();
    void addParameter(const std::string& name);
    void addState(const std::string& name, const std::string& state, uint32_t index);
    void addShared(uint32_t index, bool eachHasStep);

    Save& save_;
    Parameters& parameters_;
    const std::string root_;
    std::vector<std::string> trained_;
    std::map<std::string, std::vector<std::string>> files_;  // states of parameters: "fp32" of fp32.pt
    std::map<std::string, uint32_t> indexOf_;                // of paths
    ExpectedStates expected_;
    std::optional<DType> modelDType_;
};

// For weights and buffers that are not trained there are copies in float32, which `module` holds as they are.
void Universal::leaveOut(const std::string& name, const std::vector<std::string>& states) {
    for (const std::string& state : states) {
        const std::string path = pathOf(name, state);
        if (const auto entry = save_.source.directory->stat(path); entry.ok())
            save_.assembly.addUnused({path, DirectoryEntry::Kind::file, entry->size}, kNone);
    }
}

Status Universal::listTrained() {
    std::set<std::string> listed;
    for (const ModelFile& model : save_.models) {
        for (const auto& group : model.states.groups) {
            for (const NamedShape& named : group)
                if (listed.insert(named.name).second) trained_.push_back(named.name);
        }
    }
    SHARDSCOPE_ASSIGN(const auto below,
                      filesBelow(*save_.source.directory, root_, kMostLevels, Closed::skip));
    std::map<std::string, std::vector<std::string>> found;
    for (const DirectoryEntry& file : below) {
        const std::string_view name = directoryOf(file.name), state = lastNameOf(file.name);
        if (!name.empty() && state.ends_with(".pt"))
            found[std::string(name)].emplace_back(state.substr(0, state.size() - 3));
    }
    size_t copies = 0;
    for (auto& [name, states] : found) {
        if (!listed.empty() && !listed.contains(name)) {
            ++copies;
            leaveOut(name, states);
            continue;
        }
        if (listed.empty()) trained_.push_back(name);
        expected_.add(states);
        files_[name] = std::move(states);
    }
    if (copies > 0)
        save_.inconsistent(
            Severity::info,
            fmt::format(
                "'zero' has float32 copies of {}; what is read is in the model states, with its own dtype",
                counted(copies, "untrained tensor")));
    return {};
}

Status Universal::readStates() {
    std::vector<std::pair<std::string, uint32_t>> names;
    for (const auto& [name, states] : files_) {
        for (const std::string& state : states)
            names.emplace_back(pathOf(name, state), 0);
    }
    SHARDSCOPE_ASSIGN(const std::vector<uint32_t> indices,
                      save_.assembly.addFiles(names, Note::Lacks::optimizerState));
    for (size_t i = 0; i < names.size(); ++i)
        indexOf_[names[i].first] = indices[i];
    return {};
}

void Universal::addParameter(const std::string& name) {
    (void)parameters_.indexOf(name);  // whatever there is of it
    const auto files = files_.find(name);
    const auto held = files == files_.end() ? std::vector<std::string>() : files->second;
    if (expected_.isUnclear(held))
        save_.assembly.addMissing(pathOf(name, "*"), 0, Severity::error,
                                  "no state of the optimizer is here of this trained parameter",
                                  Note::Lacks::optimizerState);
    for (const std::string& state : expected_.of(held)) {
        const auto index = indexOf_.find(pathOf(name, state));
        if (index == indexOf_.end()) {
            save_.assembly.addMissing(pathOf(name, state), 0, Severity::error,
                                      fmt::format("'{}' of a trained parameter is missing", state),
                                      Note::Lacks::optimizerState);
        } else if (index->second != kNone) {
            addState(name, state, index->second);
        }
    }
}

// One file of a parameter's state.
void Universal::addState(const std::string& name, const std::string& state, uint32_t index) {
    const TensorFile& file = save_.contents(index);
    for (const StoredObject& object : file.objects) {
        if (object.path.empty() || state == "step")
            parameters_.addStateObject(name, state, object.value, index, 0);
    }
    // A bare tensor, or the "param" of a dictionary.
    const auto tensor = std::ranges::find_if(file.tensors, [](const StoredTensor& t) {
        return t.special == kNone && (t.path.empty() || (t.path.size() == 1 && t.path[0].text == "param"));
    });
    if (tensor == file.tensors.end()) {
        if (file.objects.empty())
            save_.assembly.wrong("the file holds no tensor", file.name, name, Note::Lacks::optimizerState);
        return;
    }
    const auto t = static_cast<uint32_t>(tensor - file.tensors.begin());
    const Parameter& parameter = parameters_[parameters_.indexOf(name)];
    // From stage 3 they are flat, and what has no dimensions may have one: the shape is in param_shapes.
    const bool reshaped = parameter.placed() && tensor->shape != parameter.placement.whole &&
                          elementCount(tensor->shape) == elementCount(parameter.placement.whole);
    if ((save_.stage != 3 && !reshaped) || state == "step") {
        parameters_.addState(name, state, index, t, 0);
        // Layer files of a pipeline are not copied: its weights are what the masters round to.
        const std::optional<DType> dtype = parameter.dtype ? parameter.dtype : modelDType_;
        if (state != "fp32" || !parameter.stored.empty() || !dtype) return;
        TensorAssembly::Piece weight;
        weight.part = StoredPart::whole(index, t);
        if (*dtype != tensor->dtype) weight.part.storedAs = tensor->dtype;
        save_.assembly.addPiece({keyPart(name)}, *dtype, tensor->shape, Role::parameter, std::move(weight));
        return;
    }
    if (!parameter.placed()) return;
    const int64_t elements = elementCount(parameter.placement.whole);
    if (elementCount(tensor->shape) != elements) {
        save_.assembly.wrong(fmt::format("it has {}, by param_shapes it has the shape {}",
                                         counted(elementCount(tensor->shape), "element"),
                                         formatDims(parameter.placement.whole)),
                             file.name, name, Note::Lacks::anything);
        return;
    }
    TensorAssembly::Piece piece;
    piece.part = StoredPart::range(index, t, 0, elements);
    save_.assembly.addPiece(statePath(name, state), tensor->dtype, parameter.placement.whole, Role::optimizer,
                            piece);
    if (state != "fp32" || !parameter.dtype || (save_.stage != 3 && !parameter.stored.empty())) return;
    if (*parameter.dtype != tensor->dtype) piece.part.storedAs = tensor->dtype;
    save_.assembly.addPiece({keyPart(name)}, *parameter.dtype, parameter.placement.whole, Role::parameter,
                            std::move(piece));
}

// What is kept once for all parameters.
void Universal::addShared(uint32_t index, bool eachHasStep) {
    const TensorFile& file = save_.contents(index);
    // Stage 3 keeps the step here, once for each sub-group.
    for (uint32_t t = 0; t < file.tensors.size(); ++t) {
        if (file.tensors[t].name != "optimizer_state_dict.state.0.step") continue;
        // Once more, in a checkpoint for all stages.
        if (eachHasStep) {
            save_.assembly.addWhole(index, t, joined({"optimizer"}, file.tensors[t].path), Role::optimizer,
                                    0);
            continue;
        }
        for (const std::string& name : trained_)
            parameters_.addState(name, "step", index, t, 0);
    }
    for (const StoredObject& object : file.objects) {
        if (object.name == "optimizer_state_dict.state.0.step" && !eachHasStep) {
            for (const std::string& name : trained_)
                parameters_.addStateObject(name, "step", object.value, index, 0);
        }
        const std::string& key = object.path.empty() ? object.name : object.path[0].text;
        if (isAmong(key, {"loss_scaler", "dynamic_loss_scale", "overflow", "clip_grad", "zero_stage",
                          "param_groups", "ds_version"})) {
            const auto stage = key == "zero_stage" ? integerOf(object.value) : std::nullopt;
            save_.assembly.addObject(index, joined({"optimizer"}, object.path),
                                     stage ? makeIntegerValue(*stage) : object.value, 0);
        }
    }
}

Status Universal::add() {
    SHARDSCOPE_TRY(listTrained());
    SHARDSCOPE_ASSIGN(const uint32_t shared,
                      save_.assembly.addFile(root_ + "/optimizer_state.pt", 0, Note::Lacks::optimizerState));
    SHARDSCOPE_TRY(readStates());
    if (!save_.models.empty() && save_.models[0].index != kNone) {
        const Entries entries(save_.contents(save_.models[0].index));
        modelDType_ = entries["ds_config.bf16.enabled"].isTrue()   ? DType::bfloat16
                      : entries["ds_config.fp16.enabled"].isTrue() ? DType::float16
                                                                   : DType::float32;
    }
    for (const std::string& name : trained_)
        addParameter(name);
    const bool eachHasStep = std::ranges::any_of(
        files_, [](const auto& entry) { return std::ranges::count(entry.second, "step") > 0; });
    if (shared != kNone) addShared(shared, eachHasStep);
    const std::string left = save_.tag.prefix + "tmp";
    if (const auto inside = save_.source.directory->list(left); inside.ok() && !inside->empty())
        save_.assembly.note(
            rule::fileStale, Severity::warning,
            "'tmp' holds parts of parameters: ds_to_universal was interrupted, or did not clean up", left);
    return {};
}

}  // namespace

Status addUniversal(Save& save, Parameters& parameters) {
    return Universal(save, parameters).add();
}

}  // namespace shardscope::deepspeed

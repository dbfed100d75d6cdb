#include "formats/deepspeed/states.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/rule.h"
#include "encoding/torch_tensor.h"
#include "model/paths.h"

namespace shardscope::deepspeed {

namespace {

Error wrong(const TensorFile& file, std::string message) {
    return damaged(std::move(message)).inFile(file.name).byRule(rule::metaInconsistent);
}

Result<NamedShape> shapeOf(const TensorFile& file, std::string_view name, ValueView dims, const char* where) {
    NamedShape named{std::string(name), {}};
    // Files of experts hold plain tuples in place of torch.Size.
    auto shape = asDims(dims, fmt::format("a shape in {}", where));
    if (!shape.ok()) return std::move(shape).error().ofTensor(named.name).inFile(file.name);
    named.shape = std::move(shape).value();
    if (!checkedProduct(named.shape, named.elements) || named.elements > kMaxDim)
        return wrong(file, fmt::format("the shape {} in {} is too large", formatDims(named.shape), where))
            .ofTensor(named.name);
    return named;
}

// Whether a path begins with these keys.
bool isBelow(const Path& path, const std::vector<std::string_view>& keys) {
    if (path.size() < keys.size()) return false;
    for (size_t i = 0; i < keys.size(); ++i)
        if (!isKey(path, i, keys[i])) return false;
    return true;
}

// The number of a group or parameter at `at`, and the name of the state behind it.
std::optional<std::pair<int64_t, std::string>> stateAt(const Path& path, size_t at) {
    if (path.size() < at + 2 || path[at].kind == PathPart::Kind::key) return std::nullopt;
    return std::pair(path[at].index, pathName(below(path, at + 1)));
}

// Calls visit(path, tensor or kNone, value or null) for all entries of a file.
template <class Visit>
void forEntries(const TensorFile& file, Visit&& visit) {
    for (uint32_t t = 0; t < file.tensors.size(); ++t) {
        if (file.tensors[t].special == kNone) visit(file.tensors[t].path, t, nullptr);
    }
    for (const StoredObject& object : file.objects)
        visit(object.path, kNone, &object.value);
}

void addState(std::map<int64_t, GroupStates>& groups, const std::pair<int64_t, std::string>& at,
              uint32_t tensor, const Value* value) {
    GroupStates& group = groups[at.first];
    if (tensor != kNone) {
        group.tensors.emplace_back(at.second, tensor);
    } else if (value) {
        group.objects.emplace_back(at.second, value);
    }
}

// Where the state of each group is, below the whole file.
const std::vector<std::vector<std::string_view>>& groupPlaces() {
    static const std::vector<std::vector<std::string_view>> places = {
        {"optimizer_state_dict", "base_optimizer_state", "state"},
        {"optimizer_state_dict", "base_optimizer_state"},  // elastic_checkpoint: a list
        {"optimizer_state_dict", "optimizer_state_dict", "state"},
        {"optimizer_state_dict", "state"},  // optimizer_state.pt of a universal checkpoint of stage 3
    };
    return places;
}

}  // namespace

std::optional<int64_t> integerOf(ValueView value) {
    const std::vector<ValueView> arguments = value.arguments();
    return arguments.size() == 1 ? arguments[0].integer() : value.integer();
}

std::vector<int64_t> Entries::integers(const std::string& name) const {
    const ValueView value = (*this)[name];
    if (const auto one = integerOf(value)) return {*one};
    std::vector<int64_t> out;
    for (const ValueView item : value.items())
        out.push_back(integerOf(item).value_or(-1));
    return out;
}

std::vector<std::string> textsIn(ValueView list) {
    std::vector<std::string> out;
    for (const ValueView item : list.items()) {
        if (const auto text = item.text()) out.emplace_back(*text);
    }
    return out;
}

Result<ModelStates> readModelStates(const TensorFile& file) {
    const Entries entries(file);
    ModelStates states;
    const ValueView groups = entries["param_shapes"];
    states.hasGroups = groups.isList();
    for (const ValueView group : groups.items()) {
        if (!group.isMapping()) return wrong(file, "a group in param_shapes is not a dictionary");
        auto& shapes = states.groups.emplace_back();
        for (const auto& [name, dims] : group.pairs()) {
            if (!name.text()) return wrong(file, "a name in param_shapes is not a text");
            SHARDSCOPE_ASSIGN(NamedShape named, shapeOf(file, *name.text(), dims, "param_shapes"));
            shapes.push_back(std::move(named));
        }
    }
    for (const std::string& name : textsIn(entries["buffer_names"]))
        states.buffers.insert(name);
    for (const StoredObject& object : file.objects) {
        if (object.path.size() != 2 || object.path[0].kind != PathPart::Kind::key || !object.value) continue;
        const std::string& name = object.path[1].text;
        if (object.path[0].text == "frozen_param_shapes") {
            SHARDSCOPE_ASSIGN(NamedShape named, shapeOf(file, name, object.value, "frozen_param_shapes"));
            states.frozen.push_back(std::move(named));
        } else if (const auto holder = ValueView(object.value).text();
                   holder && object.path[0].text == "shared_params") {
            states.shared.emplace_back(name, *holder);
        }
    }
    states.dpWorld = entries.integer("dp_world_size");
    states.mpWorld = entries.integer("mp_world_size");
    states.tpDegree = entries.integer("checkpoint_parallel_dimensions.tp_degree");
    states.steps = entries.integer("global_steps");
    states.experts = entries.integers("num_experts");
    states.version = entries["ds_version"].textOr({});
    return states;
}

int64_t OptimizerStates::partitionCount() const {
    return partitions.empty() ? 0 : *std::ranges::max_element(partitions);
}

Result<OptimizerStates> readOptimizerStates(const TensorFile& file) {
    const Entries entries(file);
    OptimizerStates states;
    const auto in = [](std::string_view name) { return fmt::format("optimizer_state_dict.{}", name); };
    states.stage = entries.integer(in("zero_stage"));
    states.partitions = entries.integers(in("partition_count"));
    for (int64_t count : states.partitions) {
        if (count < 1 || count > kMaxDim) return wrong(file, fmt::format("partition_count is {}", count));
    }
    for (const ValueView group : entries[in("param_alignment_paddings")].items()) {
        states.alignment.emplace_back();
        for (const ValueView item : group.items()) {
            const auto padding = integerOf(item);
            if (!padding || *padding < 0 || *padding > 1 << 20)
                return wrong(file, "param_alignment_paddings holds what is not a padding");
            states.alignment.back().push_back(*padding);
        }
    }
    const ValueView slices = entries[in("param_slice_mappings")];
    states.hasSlices = slices.isList();
    for (const ValueView group : slices.items()) {
        states.slices.emplace_back();
        for (const auto& [name, about] : group.pairs()) {
            const auto start = integerOf(about["start"]), elements = integerOf(about["numel"]);
            if (name.text() && about.is(ValueKind::object) && start && elements)
                states.slices.back().push_back({std::string(*name.text()), *start, *elements});
        }
    }
    for (const char* base : {"base_optimizer_state", "optimizer_state_dict"}) {
        const std::vector<ValueView> groups = entries[in(base) + ".param_groups"].items();
        for (size_t i = 0; i < groups.size(); ++i)
            if (groups[i]["use_muon"].isTrue()) states.muon.insert(static_cast<int64_t>(i));
    }
    forEntries(file, [&](const Path& path, uint32_t tensor, const Value* value) {
        for (const char* masters : {"single_partition_of_fp32_groups", "fp32_flat_groups"}) {
            if (tensor != kNone && path.size() == 3 && isBelow(path, {"optimizer_state_dict", masters}))
                return addState(states.groups, {path[2].index, "fp32"}, tensor, value);
        }
        for (const auto& place : groupPlaces()) {
            if (!isBelow(path, place)) continue;
            if (const auto at = stateAt(path, place.size())) addState(states.groups, *at, tensor, value);
            return;
        }
    });
    return states;
}

PlainStates readPlainStates(const TensorFile& file) {
    PlainStates states;
    forEntries(file, [&](const Path& path, uint32_t tensor, const Value* value) {
        if (!isBelow(path, {"optimizer"})) return;
        if (tensor != kNone && isBelow(path, {"optimizer", "fp32_groups"}) && path.size() == 4) {
            const auto group = static_cast<size_t>(path[2].index);
            // In the order of the lists.
            if (group >= states.masters.size()) states.masters.resize(states.masters.size() + 1);
            if (group < states.masters.size()) states.masters[group].push_back(tensor);
            return;
        }
        if (tensor != kNone && isBelow(path, {"optimizer", "fp32_groups_flat"}) && path.size() == 3) {
            states.flatMasters[path[2].index] = tensor;
            return;
        }
        const Path inside = below(path, isBelow(path, {"optimizer", "optimizer_state_dict"}) ? 2 : 1);
        if (isBelow(inside, {"state"})) {
            if (const auto at = stateAt(inside, 1)) addState(states.states, *at, tensor, value);
        } else if (value && inside.size() == 1 && isBelow(inside, {"param_groups"})) {
            for (const ValueView group : ValueView(*value).items()) {
                auto& made = states.groups.emplace_back();
                made.experts = group["moe"].isTrue();
                for (const ValueView id : group["params"].items())
                    made.ids.push_back(integerOf(id).value_or(-1));
            }
        }
    });
    return states;
}

}  // namespace shardscope::deepspeed

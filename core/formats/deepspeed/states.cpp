#include "formats/deepspeed/states.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/rule.h"
#include "encoding/torch_tensor.h"
#include "formats/paths.h"

namespace shardscope::deepspeed {

namespace {

Error wrong(const TensorFile& file, std::string message) {
    return damaged(std::move(message)).inFile(file.name).byRule(rule::metaInconsistent);
}

Result<std::vector<NamedShape>> shapesIn(const TensorFile& file, const ValueGraph& g, NodeId mapping) {
    std::vector<NamedShape> shapes;
    const std::span<const NodeId> pairs = g.pairs(mapping);
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
        if (g.kind(pairs[i]) != ValueKind::text) return wrong(file, "a name in param_shapes is not a text");
        NamedShape named;
        named.name = g.text(pairs[i]);
        // Files of experts hold plain tuples in place of torch.Size.
        auto shape = asDims(g, pairs[i + 1], "a shape in param_shapes");
        if (!shape.ok()) return std::move(shape).error().ofTensor(named.name).inFile(file.name);
        named.shape = std::move(shape).value();
        if (!checkedProduct(named.shape, named.elements) || named.elements > kMaxDim)
            return wrong(file,
                         fmt::format("the shape {} in param_shapes is too large", formatDims(named.shape)))
                .ofTensor(named.name);
        shapes.push_back(std::move(named));
    }
    return shapes;
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

bool isSequence(const ValueGraph& g, NodeId node) {
    return node != kNoNode && (g.kind(node) == ValueKind::list || g.kind(node) == ValueKind::tuple);
}

std::optional<int64_t> integerOf(const ValueGraph& g, NodeId node) {
    if (node == kNoNode) return std::nullopt;
    if (g.kind(node) == ValueKind::object && g.argumentsOf(node).size() == 1) node = g.argumentsOf(node)[0];
    if (g.kind(node) != ValueKind::integer) return std::nullopt;
    return g.integer(node);
}

const Value* Entries::find(const std::string& name) const {
    const auto it = values_.find(name);
    return it == values_.end() || !*it->second ? nullptr : it->second;
}

std::optional<int64_t> Entries::integer(const std::string& name) const {
    const Value* value = find(name);
    return value ? integerOf(*value->graph, value->node) : std::nullopt;
}

bool Entries::isTrue(const std::string& name) const {
    const Value* value = find(name);
    return value && value->kind() == ValueKind::boolean && value->graph->boolean(value->node);
}

std::string Entries::text(const std::string& name) const {
    const Value* value = find(name);
    if (!value || value->kind() != ValueKind::text) return {};
    return std::string(value->graph->text(value->node));
}

std::vector<int64_t> Entries::integers(const std::string& name) const {
    std::vector<int64_t> out;
    const Value* value = find(name);
    if (!value) return out;
    const ValueGraph& g = *value->graph;
    if (const auto one = integerOf(g, value->node)) out.push_back(*one);
    if (!isSequence(g, value->node)) return out;
    for (NodeId item : g.items(value->node))
        out.push_back(integerOf(g, item).value_or(-1));
    return out;
}

std::vector<std::string> Entries::texts(const std::string& name) const {
    std::vector<std::string> out;
    const Value* value = find(name);
    if (!value || !isSequence(*value->graph, value->node)) return out;
    for (NodeId item : value->graph->items(value->node)) {
        if (value->graph->kind(item) == ValueKind::text) out.emplace_back(value->graph->text(item));
    }
    return out;
}

Result<ModelStates> readModelStates(const TensorFile& file) {
    const Entries entries(file);
    ModelStates states;
    if (const Value* shapes = entries.find("param_shapes");
        shapes && isSequence(*shapes->graph, shapes->node)) {
        const ValueGraph& g = *shapes->graph;
        states.hasGroups = true;
        for (NodeId group : g.items(shapes->node)) {
            if (!g.isMapping(group)) return wrong(file, "a group in param_shapes is not a dictionary");
            SHARDSCOPE_ASSIGN(auto named, shapesIn(file, g, group));
            states.groups.push_back(std::move(named));
        }
    }
    for (const std::string& name : entries.texts("buffer_names"))
        states.buffers.insert(name);
    for (const StoredObject& object : file.objects) {
        if (object.path.size() != 2 || object.path[0].kind != PathPart::Kind::key || !object.value) continue;
        const ValueGraph& g = *object.value.graph;
        const std::string& name = object.path[1].text;
        if (object.path[0].text == "frozen_param_shapes") {
            auto shape = asDims(g, object.value.node, "a shape in frozen_param_shapes");
            if (!shape.ok()) return std::move(shape).error().ofTensor(name).inFile(file.name);
            NamedShape named{name, std::move(shape).value()};
            if (!checkedProduct(named.shape, named.elements) || named.elements > kMaxDim)
                return wrong(file, "the shape in frozen_param_shapes is too large").ofTensor(name);
            states.frozen.push_back(std::move(named));
        } else if (object.path[0].text == "shared_params" && g.kind(object.value.node) == ValueKind::text) {
            states.shared.emplace_back(name, g.text(object.value.node));
        }
    }
    states.dpWorld = entries.integer("dp_world_size");
    states.mpWorld = entries.integer("mp_world_size");
    states.tpDegree = entries.integer("checkpoint_parallel_dimensions.tp_degree");
    states.steps = entries.integer("global_steps");
    states.experts = entries.integers("num_experts");
    states.version = entries.text("ds_version");
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
    if (const Value* all = entries.find(in("param_alignment_paddings"));
        all && isSequence(*all->graph, all->node)) {
        for (NodeId group : all->graph->items(all->node)) {
            states.alignment.emplace_back();
            if (!isSequence(*all->graph, group)) continue;
            for (NodeId item : all->graph->items(group)) {
                const auto padding = integerOf(*all->graph, item);
                if (!padding || *padding < 0 || *padding > 1 << 20)
                    return wrong(file, "param_alignment_paddings holds what is not a padding");
                states.alignment.back().push_back(*padding);
            }
        }
    }
    if (const Value* all = entries.find(in("param_slice_mappings"));
        all && isSequence(*all->graph, all->node)) {
        const ValueGraph& g = *all->graph;
        states.hasSlices = true;
        for (NodeId group : g.items(all->node)) {
            states.slices.emplace_back();
            const std::span<const NodeId> pairs = g.pairs(group);
            for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
                if (g.kind(pairs[i]) != ValueKind::text || g.kind(pairs[i + 1]) != ValueKind::object)
                    continue;
                const NodeId about = g.object(pairs[i + 1]).state;
                const auto start = about == kNoNode ? std::nullopt : integerOf(g, g.find(about, "start"));
                const auto elements = about == kNoNode ? std::nullopt : integerOf(g, g.find(about, "numel"));
                if (start && elements)
                    states.slices.back().push_back({std::string(g.text(pairs[i])), *start, *elements});
            }
        }
    }
    for (const char* base : {"base_optimizer_state", "optimizer_state_dict"}) {
        const Value* groups = entries.find(in(base) + ".param_groups");
        if (!groups || !isSequence(*groups->graph, groups->node)) continue;
        const ValueGraph& g = *groups->graph;
        for (size_t i = 0; i < g.items(groups->node).size(); ++i) {
            const NodeId muon = g.find(g.items(groups->node)[i], "use_muon");
            if (muon != kNoNode && g.kind(muon) == ValueKind::boolean && g.boolean(muon))
                states.muon.insert(static_cast<int64_t>(i));
        }
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
        } else if (value && *value && inside.size() == 1 && isBelow(inside, {"param_groups"}) &&
                   isSequence(*value->graph, value->node)) {
            const ValueGraph& g = *value->graph;
            for (NodeId group : g.items(value->node)) {
                states.groups.emplace_back();
                const NodeId ids = g.find(group, "params"), experts = g.find(group, "moe");
                if (isSequence(g, ids)) {
                    for (NodeId id : g.items(ids))
                        states.groups.back().ids.push_back(integerOf(g, id).value_or(-1));
                }
                states.groups.back().experts =
                    experts != kNoNode && g.kind(experts) == ValueKind::boolean && g.boolean(experts);
            }
        }
    });
    return states;
}

}  // namespace shardscope::deepspeed

#include "model/value.h"

#include <cassert>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

namespace shardscope {

NodeId ValueGraph::add(ValueKind kind, int64_t number, uint32_t size) {
    nodes_.push_back({number, size, kind, false});
    return static_cast<NodeId>(nodes_.size() - 1);
}

NodeId ValueGraph::addNone() {
    return add(ValueKind::none, 0);
}
NodeId ValueGraph::addBoolean(bool value) {
    return add(ValueKind::boolean, value);
}
NodeId ValueGraph::addInteger(int64_t value) {
    return add(ValueKind::integer, value);
}

NodeId ValueGraph::addReal(double value) {
    int64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return add(ValueKind::real, bits);
}

NodeId ValueGraph::addText(ValueKind kind, std::string_view text) {
    const auto begin = static_cast<int64_t>(texts_.size());
    texts_ += text;
    return add(kind, begin, static_cast<uint32_t>(text.size()));
}

NodeId ValueGraph::addGlobal(std::string_view module, std::string_view name) {
    const auto begin = static_cast<int64_t>(texts_.size());
    texts_ += module;
    texts_ += '\n';
    texts_ += name;
    return add(ValueKind::global, begin, static_cast<uint32_t>(module.size() + 1 + name.size()));
}

NodeId ValueGraph::addContainer(ValueKind kind, std::span<const NodeId> items) {
    const auto begin = static_cast<int64_t>(pool_.size());
    pool_.insert(pool_.end(), items.begin(), items.end());
    return add(kind, begin, static_cast<uint32_t>(items.size()));
}

NodeId ValueGraph::addObject(const ValueObject& object) {
    objects_.push_back(object);
    return add(ValueKind::object, static_cast<int64_t>(objects_.size() - 1));
}

void ValueGraph::append(NodeId container, std::span<const NodeId> items) {
    if (items.empty()) return;
    Node& node = nodes_[container];
    const auto begin = static_cast<size_t>(node.number);
    const size_t size = node.size;
    const size_t grown = size + items.size();
    const size_t capacity = node.roomy ? pool_[begin - 1] : size;
    if (grown <= capacity) {
        std::memcpy(pool_.data() + begin + size, items.data(), items.size_bytes());
    } else if (size == 0) {
        // Most containers are filled once: exactly as long as they are.
        node.number = static_cast<int64_t>(pool_.size());
        node.roomy = false;
        pool_.insert(pool_.end(), items.begin(), items.end());
    } else if (begin + capacity == pool_.size()) {
        pool_.resize(begin + size);  // the last one grows where it is
        pool_.insert(pool_.end(), items.begin(), items.end());
        if (node.roomy) pool_[begin - 1] = static_cast<NodeId>(grown);
    } else {
        const size_t roomFor = grown + grown / 2;
        const size_t moved = pool_.size() + 1;
        pool_.resize(moved + roomFor, kNoNode);
        pool_[moved - 1] = static_cast<NodeId>(roomFor);
        std::memcpy(pool_.data() + moved, pool_.data() + begin, size * sizeof(NodeId));
        std::memcpy(pool_.data() + moved + size, items.data(), items.size_bytes());
        node.number = static_cast<int64_t>(moved);
        node.roomy = true;
    }
    node.size = static_cast<uint32_t>(grown);
}

void ValueGraph::appendToObject(NodeId node, std::span<const NodeId> items) {
    if (object(node).appended == kNoNode) {
        const NodeId list = addContainer(ValueKind::list);
        object(node).appended = list;
    }
    append(object(node).appended, items);
}

void ValueGraph::setInObject(NodeId node, std::span<const NodeId> keysAndValues) {
    if (object(node).pairs == kNoNode) {
        const NodeId dict = addContainer(ValueKind::dict);
        object(node).pairs = dict;
    }
    append(object(node).pairs, keysAndValues);
}

double ValueGraph::real(NodeId node) const {
    double value = 0;
    std::memcpy(&value, &nodes_[node].number, sizeof value);
    return value;
}

std::string_view ValueGraph::text(NodeId node) const {
    return std::string_view(texts_).substr(static_cast<size_t>(nodes_[node].number), nodes_[node].size);
}

std::string_view ValueGraph::globalModule(NodeId node) const {
    const std::string_view both = text(node);
    return both.substr(0, both.find('\n'));
}

std::string_view ValueGraph::globalName(NodeId node) const {
    const std::string_view both = text(node);
    return both.substr(both.find('\n') + 1);
}

bool ValueGraph::isMapping(NodeId node) const {
    if (node == kNoNode) return false;
    if (kind(node) == ValueKind::dict) return true;
    if (kind(node) != ValueKind::object) return false;
    const ValueObject& made = object(node);
    if (made.pairs != kNoNode) return true;
    return isGlobal(made.callable, "collections", "OrderedDict") ||
           isGlobal(made.callable, "collections", "defaultdict") ||
           isGlobal(made.callable, "collections", "Counter");
}

std::span<const NodeId> ValueGraph::pairs(NodeId mapping) const {
    if (mapping == kNoNode) return {};
    if (kind(mapping) == ValueKind::dict) return items(mapping);
    if (kind(mapping) == ValueKind::object && object(mapping).pairs != kNoNode)
        return items(object(mapping).pairs);
    return {};
}

std::span<const NodeId> ValueGraph::argumentsOf(NodeId node) const {
    const NodeId arguments = object(node).arguments;
    if (arguments == kNoNode || kind(arguments) != ValueKind::tuple) return {};
    return items(arguments);
}

NodeId ValueGraph::find(NodeId mapping, std::string_view key) const {
    const std::span<const NodeId> all = pairs(mapping);
    for (size_t i = all.size() / 2; i-- > 0;) {
        if (isText(all[2 * i], key)) return all[2 * i + 1];
    }
    return kNoNode;
}

uint64_t ValueGraph::memoryBytes() const {
    return nodes_.capacity() * sizeof(Node) + texts_.capacity() + pool_.capacity() * sizeof(NodeId) +
           objects_.capacity() * sizeof(ValueObject);
}

Value makeValue(ValueGraph&& graph, NodeId node) {
    return {std::make_shared<const ValueGraph>(std::move(graph)), node};
}

Value makeTextValue(std::string_view text) {
    ValueGraph graph;
    const NodeId node = graph.addText(ValueKind::text, text);
    return makeValue(std::move(graph), node);
}

Value makeIntegerValue(int64_t value) {
    ValueGraph graph;
    const NodeId node = graph.addInteger(value);
    return makeValue(std::move(graph), node);
}

// ------------------------------------------------------------------ walks

namespace {

// Calls edge(child) for every node that `node` refers to.
template <class Edge>
void forEachChild(const ValueGraph& graph, NodeId node, Edge&& edge) {
    switch (graph.kind(node)) {
        case ValueKind::list:
        case ValueKind::tuple:
        case ValueKind::set:
        case ValueKind::frozenSet:
        case ValueKind::dict:
        case ValueKind::persistent:
            for (NodeId item : graph.items(node))
                edge(item);
            break;
        case ValueKind::object: {
            const ValueObject object = graph.object(node);
            for (NodeId part : {object.callable, object.arguments, object.keywords, object.state,
                                object.appended, object.pairs}) {
                if (part != kNoNode) edge(part);
            }
            break;
        }
        default:
            break;
    }
}

}  // namespace

NodeId copyValue(const Value& source, ValueGraph& graph, size_t maxNodes) {
    if (!source) return kNoNode;
    const ValueGraph& from = *source.graph;
    // First an empty copy of every node that is reached, then the references between them: cycles need no
    // care.
    std::unordered_map<NodeId, NodeId> copies;
    std::vector<NodeId> order;
    const auto reach = [&](NodeId node) {
        if (!copies.emplace(node, kNoNode).second) return;
        order.push_back(node);
    };
    reach(source.node);
    for (size_t i = 0; i < order.size(); ++i) {
        if (order.size() > maxNodes) return kNoNode;
        const NodeId node = order[i];
        NodeId copy = kNoNode;
        switch (from.kind(node)) {
            case ValueKind::none:
                copy = graph.addNone();
                break;
            case ValueKind::boolean:
                copy = graph.addBoolean(from.boolean(node));
                break;
            case ValueKind::integer:
                copy = graph.addInteger(from.integer(node));
                break;
            case ValueKind::real:
                copy = graph.addReal(from.real(node));
                break;
            case ValueKind::text:
            case ValueKind::bytes:
            case ValueKind::byteArray:
            case ValueKind::bigInteger:
            case ValueKind::global:
                copy = graph.addText(from.kind(node), from.text(node));
                break;
            case ValueKind::object:
                copy = graph.addObject({});
                break;
            default:
                copy = graph.addContainer(from.kind(node));
                break;
        }
        copies[node] = copy;
        forEachChild(from, node, reach);
    }
    std::vector<NodeId> items;
    for (NodeId node : order) {
        const NodeId copy = copies[node];
        const auto mapped = [&](NodeId child) { return child == kNoNode ? kNoNode : copies[child]; };
        if (from.kind(node) == ValueKind::object) {
            const ValueObject& object = from.object(node);
            graph.object(copy) = {object.made,
                                  mapped(object.callable),
                                  mapped(object.arguments),
                                  mapped(object.keywords),
                                  mapped(object.state),
                                  mapped(object.appended),
                                  mapped(object.pairs)};
            continue;
        }
        items.clear();
        forEachChild(from, node, [&](NodeId child) { items.push_back(copies[child]); });
        graph.append(copy, items);
    }
    return copies[source.node];
}

bool forEachGlobal(const Value& value, const std::function<void(std::string_view, std::string_view)>& visit,
                   size_t maxNodes) {
    if (!value) return true;
    const ValueGraph& graph = *value.graph;
    std::unordered_set<NodeId> seen{value.node};
    std::unordered_set<std::string_view> named;
    std::vector<NodeId> order{value.node};
    for (size_t i = 0; i < order.size(); ++i) {
        if (order.size() > maxNodes) return false;
        const NodeId node = order[i];
        if (graph.kind(node) == ValueKind::global && named.insert(graph.text(node)).second) {
            visit(graph.globalModule(node), graph.globalName(node));
        }
        forEachChild(graph, node, [&](NodeId child) {
            if (seen.insert(child).second) order.push_back(child);
        });
    }
    return true;
}

}  // namespace shardscope

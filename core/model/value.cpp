#include "model/value.h"

#include <cassert>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

namespace shardscope {

NodeId ValueGraph::add(ValueKind kind, int64_t number, uint32_t textSize) {
    nodes_.push_back({number, textSize, kind});
    return static_cast<NodeId>(nodes_.size() - 1);
}

NodeId ValueGraph::addNone() { return add(ValueKind::none, 0); }
NodeId ValueGraph::addBoolean(bool value) { return add(ValueKind::boolean, value); }
NodeId ValueGraph::addInteger(int64_t value) { return add(ValueKind::integer, value); }

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

NodeId ValueGraph::addContainer(ValueKind kind, std::vector<NodeId> items) {
    lists_.push_back(std::move(items));
    return add(kind, static_cast<int64_t>(lists_.size() - 1));
}

NodeId ValueGraph::addObject(ValueObject object) {
    objects_.push_back(std::move(object));
    return add(ValueKind::object, static_cast<int64_t>(objects_.size() - 1));
}

double ValueGraph::real(NodeId node) const {
    double value = 0;
    std::memcpy(&value, &nodes_[node].number, sizeof value);
    return value;
}

std::string_view ValueGraph::text(NodeId node) const {
    return std::string_view(texts_).substr(static_cast<size_t>(nodes_[node].number), nodes_[node].textSize);
}

std::string_view ValueGraph::globalModule(NodeId node) const {
    const std::string_view both = text(node);
    return both.substr(0, both.find('\n'));
}

std::string_view ValueGraph::globalName(NodeId node) const {
    const std::string_view both = text(node);
    return both.substr(both.find('\n') + 1);
}

NodeId ValueGraph::find(NodeId dictOrObject, std::string_view key) const {
    const std::vector<NodeId>* pairs = nullptr;
    if (kind(dictOrObject) == ValueKind::dict) pairs = &items(dictOrObject);
    if (kind(dictOrObject) == ValueKind::object) pairs = &object(dictOrObject).pairs;
    if (!pairs) return kNoNode;
    NodeId found = kNoNode;  // the last one wins, as in Python
    for (size_t i = 0; i + 1 < pairs->size(); i += 2) {
        if (isText((*pairs)[i], key)) found = (*pairs)[i + 1];
    }
    return found;
}

uint64_t ValueGraph::memoryBytes() const {
    uint64_t bytes = nodes_.capacity() * sizeof(Node) + texts_.capacity() + lists_.capacity() * sizeof(std::vector<NodeId>) +
                     objects_.capacity() * sizeof(ValueObject);
    for (const auto& list : lists_) bytes += list.capacity() * sizeof(NodeId);
    for (const auto& object : objects_) bytes += (object.appended.capacity() + object.pairs.capacity()) * sizeof(NodeId);
    return bytes;
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

}  // namespace shardscope

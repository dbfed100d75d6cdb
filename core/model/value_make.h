// Values that a program makes of others.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/value.h"

namespace shardscope {

// The value of the node that `add(graph)` adds.
template <class Add>
Value makeValueBy(Add&& add) {
    ValueGraph graph;
    const NodeId node = add(graph);
    return makeValue(std::move(graph), node);
}

// Copies `value` into `graph`; adds None where it is empty.
inline NodeId copyOrNone(const Value& value, ValueGraph& graph) {
    return value ? copyValue(value, graph) : graph.addNone();
}
inline Value makeListOf(std::span<const Value> members) {
    return makeValueBy([&](ValueGraph& graph) {
        std::vector<NodeId> items;
        for (const Value& member : members)
            items.push_back(copyOrNone(member, graph));
        return graph.addContainer(ValueKind::list, items);
    });
}
inline Value makeDictOf(const std::map<std::string, Value>& entries) {
    return makeValueBy([&](ValueGraph& graph) {
        std::vector<NodeId> items;
        for (const auto& [key, value] : entries) {
            items.push_back(graph.addText(ValueKind::text, key));
            items.push_back(copyOrNone(value, graph));
        }
        return graph.addContainer(ValueKind::dict, items);
    });
}

}  // namespace shardscope

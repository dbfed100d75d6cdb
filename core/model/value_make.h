// Values that a program makes of others.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/path.h"
#include "model/value.h"

namespace shardscope {

// The value of the node that `add(graph)` adds.
template <class Add>
Value makeValueBy(Add&& add) {
    ValueGraph graph;
    const NodeId node = add(graph);
    return makeValue(std::move(graph), node);
}

inline Value noneValue() {
    return makeValueBy([](ValueGraph& graph) { return graph.addNone(); });
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

// A dict of dicts, put together from its leaves.
class NestedDict {
  public:
    // The leaf at path[depth], path[depth + 1], ...; one whose path ends before is left out.
    void add(const Path& path, size_t depth, const Value& value);
    Value finish() && { return makeValue(std::move(graph_), root_); }

  private:
    NodeId keyOf(const PathPart& part);

    ValueGraph graph_;
    NodeId root_ = graph_.addContainer(ValueKind::dict);
    std::map<std::string, NodeId> dicts_;  // by encoded path
};

}  // namespace shardscope

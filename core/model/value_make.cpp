#include "model/value_make.h"

namespace shardscope {

NodeId NestedDict::keyOf(const PathPart& part) {
    using Kind = PathPart::Kind;
    const bool text = part.kind == Kind::key || part.kind == Kind::otherKey || part.kind == Kind::attribute;
    return text ? graph_.addText(ValueKind::text, part.text) : graph_.addInteger(part.index);
}

void NestedDict::add(const Path& path, size_t depth, const Value& value) {
    if (path.size() <= depth) return;
    NodeId at = root_;
    for (size_t k = depth; k + 1 < path.size(); ++k) {
        const Path prefix(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(k + 1));
        const auto [it, fresh] = dicts_.try_emplace(encodePath(prefix), kNoNode);
        if (fresh) {
            it->second = graph_.addContainer(ValueKind::dict);
            const NodeId pair[] = {keyOf(path[k]), it->second};
            graph_.append(at, pair);
        }
        at = it->second;
    }
    const NodeId key = keyOf(path.back());
    const NodeId copy = copyValue(value, graph_);
    if (copy == kNoNode) return;
    const NodeId pair[] = {key, copy};
    graph_.append(at, pair);
}

}  // namespace shardscope

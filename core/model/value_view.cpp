#include "model/value_view.h"

namespace shardscope {

std::optional<int64_t> ValueView::integer() const {
    return is(ValueKind::integer) ? std::optional(graph_->integer(node_)) : std::nullopt;
}

std::optional<double> ValueView::real() const {
    return is(ValueKind::real) ? std::optional(graph_->real(node_)) : std::nullopt;
}

std::optional<double> ValueView::number() const {
    return is(ValueKind::integer) ? static_cast<double>(graph_->integer(node_)) : real();
}

std::optional<std::string_view> ValueView::text() const {
    return is(ValueKind::text) ? std::optional(graph_->text(node_)) : std::nullopt;
}

ValueView ValueView::mapping() const {
    if (isMapping()) return *this;
    const NodeId state = is(ValueKind::object) ? graph_->object(node_).state : kNoNode;
    return state != kNoNode && graph_->isMapping(state) ? ValueView(*graph_, state) : ValueView();
}

ValueView ValueView::operator[](std::string_view key) const {
    const ValueView entries = mapping();
    return entries ? ValueView(*graph_, graph_->find(entries.node_, key)) : ValueView();
}

std::vector<ValueView> ValueView::views(std::span<const NodeId> nodes) const {
    std::vector<ValueView> out;
    out.reserve(nodes.size());
    for (const NodeId node : nodes)
        out.emplace_back(*graph_, node);
    return out;
}

std::vector<ValueView> ValueView::items() const {
    return isList() ? views(graph_->items(node_)) : std::vector<ValueView>();
}

std::vector<std::pair<ValueView, ValueView>> ValueView::pairs() const {
    std::vector<std::pair<ValueView, ValueView>> out;
    if (!isMapping()) return out;
    const std::span<const NodeId> nodes = graph_->pairs(node_);
    for (size_t i = 0; i + 1 < nodes.size(); i += 2)
        out.emplace_back(ValueView(*graph_, nodes[i]), ValueView(*graph_, nodes[i + 1]));
    return out;
}

std::vector<ValueView> ValueView::arguments() const {
    return is(ValueKind::object) ? views(graph_->argumentsOf(node_)) : std::vector<ValueView>();
}

}  // namespace shardscope

// What decoders ask of a value, of a pickle or of JSON: each question has an answer, also where there is
// nothing. Entries that are not there, and those of another kind than asked for, are empty.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/value.h"

namespace shardscope {

// A node of a graph, which must outlive it.
class ValueView {
  public:
    ValueView() = default;
    ValueView(const ValueGraph& graph, NodeId node) : graph_(&graph), node_(node) {}
    ValueView(const Value& value) : graph_(value.graph.get()), node_(value.node) {}

    explicit operator bool() const { return graph_ && node_ != kNoNode; }
    bool is(ValueKind kind) const { return *this && graph_->kind(node_) == kind; }
    bool isList() const { return is(ValueKind::list) || is(ValueKind::tuple); }
    bool isMapping() const { return *this && graph_->isMapping(node_); }
    bool isText(std::string_view text) const { return *this && graph_->isText(node_, text); }
    bool isTrue() const { return is(ValueKind::boolean) && graph_->boolean(node_); }

    std::optional<int64_t> integer() const;
    std::optional<double> real() const;
    std::optional<double> number() const;  // of an integer, too
    std::optional<std::string_view> text() const;
    std::string textOr(std::string_view otherwise) const { return std::string(text().value_or(otherwise)); }
    // The value itself, or the state of an object, such as argparse.Namespace; empty where neither is a
    // mapping.
    ValueView mapping() const;
    ValueView operator[](std::string_view key) const;  // of mapping()
    // Of a list or tuple; and of any mapping.
    std::vector<ValueView> items() const;
    std::vector<std::pair<ValueView, ValueView>> pairs() const;
    // What an object is called with.
    std::vector<ValueView> arguments() const;

    const ValueGraph& graph() const { return *graph_; }
    NodeId node() const { return node_; }

  private:
    std::vector<ValueView> views(std::span<const NodeId> nodes) const;

    const ValueGraph* graph_ = nullptr;
    NodeId node_ = kNoNode;
};

}  // namespace shardscope

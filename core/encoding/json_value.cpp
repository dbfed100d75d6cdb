#include "encoding/json_value.h"

#include <vector>

#include <nlohmann/json.hpp>

namespace shardscope {

namespace {

constexpr int kMostJsonNesting = 200;

}  // namespace

NodeId addJson(const nlohmann::json& json, ValueGraph& graph, int depth) {
    using Kind = nlohmann::json::value_t;
    if (depth > kMostJsonNesting) return graph.addText(ValueKind::text, "...");
    std::vector<NodeId> items;
    switch (json.type()) {
        case Kind::boolean:
            return graph.addBoolean(json.get<bool>());
        case Kind::number_integer:
            return graph.addInteger(json.get<int64_t>());
        case Kind::number_unsigned:
            if (json.get<uint64_t>() <= INT64_MAX) return graph.addInteger(json.get<int64_t>());
            [[fallthrough]];
        case Kind::number_float:
            return graph.addReal(json.get<double>());
        case Kind::string:
            return graph.addText(ValueKind::text, json.get_ref<const std::string&>());
        case Kind::array:
            for (const auto& item : json)
                items.push_back(addJson(item, graph, depth + 1));
            return graph.addContainer(ValueKind::list, items);
        case Kind::object:
            for (const auto& [key, value] : json.items()) {
                items.push_back(graph.addText(ValueKind::text, key));
                items.push_back(addJson(value, graph, depth + 1));
            }
            return graph.addContainer(ValueKind::dict, items);
        default:
            return graph.addNone();
    }
}

Value jsonValue(std::string_view text) {
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (json.is_discarded()) return {};
    ValueGraph graph;
    const NodeId node = addJson(json, graph);
    return makeValue(std::move(graph), node);
}

}  // namespace shardscope

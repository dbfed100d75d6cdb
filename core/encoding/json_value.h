// JSON as inert values, which ValueView asks in the same words as those of pickles.
#pragma once

#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "model/value.h"

namespace shardscope {

// What is nested deeper than any file of state becomes the text "...". Integers past int64 become reals.
NodeId addJson(const nlohmann::json& json, ValueGraph& graph, int depth = 0);

// The value of a JSON text; empty where it is not one.
Value jsonValue(std::string_view text);

}  // namespace shardscope

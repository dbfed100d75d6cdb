// Lists and objects of JSON as inert values.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "model/value.h"

namespace shardscope {

// What is nested deeper than any file of state becomes the text "...". Integers past int64 become reals.
NodeId addJson(const nlohmann::json& json, ValueGraph& graph, int depth = 0);

}  // namespace shardscope

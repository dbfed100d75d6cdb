// Reading the lists of a recipe. Private to this room.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"

namespace shardscope {

Error wrongRecipe(std::string message);

// "select", "drop": a list of patterns. Errors: usage.
Result<std::vector<std::string>> recipePatterns(const std::string& key, const nlohmann::json& value);
// "rename", "cast": a list of {"from", "to"} or {"tensors", "dtype"}. Errors: usage.
using RecipePairs = std::vector<std::pair<std::string, std::string>>;
Result<RecipePairs> recipePairs(const std::string& key, const nlohmann::json& value);

}  // namespace shardscope

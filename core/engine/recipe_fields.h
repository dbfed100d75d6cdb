// What recipes and the requests in them have in common. Private to this room.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "engine/engine.h"

namespace shardscope {

inline constexpr std::string_view kRecipeSchema = "shardscope.recipe/1";

Error wrongRecipe(std::string message);

// Checks the form of a recipe, but not the contents of its steps and its job, and returns its "select",
// "drop", "rename" and "cast". Errors: usage.
Result<ConversionRequest> recipeRules(const nlohmann::json& recipe);

}  // namespace shardscope

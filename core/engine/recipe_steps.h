// The `steps` of a recipe. Private to this room.
#pragma once

#include "engine/recipe_parameters.h"

namespace shardscope {

// Errors: usage, with step and field.
Result<std::vector<RecipeStep>> parseSteps(const nlohmann::json& steps, const RecipeParameters& parameters);

}  // namespace shardscope

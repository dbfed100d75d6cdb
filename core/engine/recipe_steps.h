// The `steps` of a recipe. Private to this room.
#pragma once

#include "engine/recipe_parameters.h"

namespace shardscope {

// A step, and its position in its recipe.
struct PlacedStep {
    nlohmann::json step;
    size_t number = 0;
    std::string recipe;     // empty = the recipe that was given
    bool arranges = false;  // as RecipeStep
};

// Steps whose `when` is 0 are left out. Errors: usage, with step and field.
Result<std::vector<RecipeStep>> parseSteps(const std::vector<PlacedStep>& steps,
                                           RecipeParameters& parameters);

}  // namespace shardscope

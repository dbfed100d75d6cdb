// Recipes (--map): what to do with names, shapes and dtypes, kept in a file or built in. docs/cli.md
// describes the fields.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "plan/plan.h"

namespace shardscope {

// The recipes of resources/recipes, which are part of the program.
struct BuiltinRecipe {
    std::string_view name;  // "llama-hf-from-megatron"
    std::string_view text;  // JSON
};
const std::vector<BuiltinRecipe>& builtinRecipes();
std::string recipeDescription(const BuiltinRecipe& recipe);

// The text of a recipe: a built-in one by its name, else a file. Errors: notFound, permission, io.
Result<std::string> recipeText(const std::string& map);

// Adds the recipe's steps to `request`, before those that are already there. Values of the recipe's
// parameters come from `set` (NAME=VALUE), else from a config.json in `beside` where the recipe says which
// entry, else from the recipe itself. Errors: usage, with the offending field.
Status applyRecipe(const std::string& map, const std::vector<std::string>& set, const std::string& beside,
                   TargetRequest& request);

}  // namespace shardscope

// Recipes (--map): what to do with names, shapes and dtypes, kept in a file or built in. docs/recipes.md
// describes the fields.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "plan/plan.h"
#include "plan/steps.h"
#include "storage/file_system.h"

namespace shardscope {

// The recipes of resources/recipes, which are part of the program. Those in resources/recipe-parts are there
// to be included and are not listed.
struct BuiltinRecipe {
    std::string_view name;  // "llama-hf-from-megatron"
    std::string_view text;  // JSON
};
const std::vector<BuiltinRecipe>& builtinRecipes();
std::string recipeDescription(const BuiltinRecipe& recipe);

// The text of a recipe: a built-in one by its name, two of them one after the other ("A+B"), else a file.
// Errors: notFound, permission, io.
Result<std::string> recipeText(const std::string& map);

struct StatedConfig;
struct Checkpoint;
// Where a recipe's numbers may come from.
struct RecipeSource {
    std::shared_ptr<const StatedConfig> config;  // null = none
    const Catalog& catalog;
    std::function<Result<Value>(ObjectId)> object;
};

// Adds the recipe's steps to `request`, before those that are already there, those of the recipes that it
// includes in their place. Values of the recipe's parameters come from `set` (NAME=VALUE). Else they come,
// where the recipe says which, from a config.json, Megatron's arguments or the shape of a tensor, else from
// the recipe itself. Errors: usage, with the offending field.
Status applyRecipe(const std::string& map, const std::vector<std::string>& set, const RecipeSource& source,
                   TargetRequest& request);
// The same for a checkpoint that is open. `model`: a directory whose config.json counts where the checkpoint
// has none; may be empty.
Status applyRecipe(const std::string& map, const std::vector<std::string>& set, const Checkpoint& source,
                   const std::string& model, TargetRequest& request);
RecipeSource recipeSource(const Checkpoint& source, const std::string& model);

}  // namespace shardscope

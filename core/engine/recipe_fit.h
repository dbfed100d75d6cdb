// Which built-in recipes fit a checkpoint, by the names of its weights.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/stop.h"
#include "engine/recipe.h"

namespace shardscope {

// A built-in recipe that turns the names of one framework into those of another, and its effect on the
// weights of a checkpoint.
struct RecipeFit {
    std::string recipe, description;
    std::string family, to, from;      // "llama", "hf", "torchtitan"
    size_t weights = 0;                // number of weights that a step touches
    std::vector<std::string> left;     // names of weights that no step touches
    std::vector<std::string> missing;  // recipe parameters without a value, which the user must give
    std::vector<std::pair<std::string, std::string>> values;  // of the others, and where they are from
    size_t idle = 0;                   // its own steps, not included ones, that match nothing
    bool ofModel = false;              // the config.json beside the checkpoint names this family
    std::vector<std::string> same;     // further recipes with the same result for this checkpoint
    std::vector<std::string> results;  // the names of the weights afterwards
    bool fits() const { return left.empty(); }
};

// The recipes that touch at least half of the weights, the best first. Of those with the same result only the
// best is listed (RecipeFit::same). `model`: a directory whose config.json counts where the checkpoint has
// none; may be empty. Errors: cancelled.
Result<std::vector<RecipeFit>> fittingRecipes(const Checkpoint& source, const std::string& model,
                                              const StopToken& stop = {});

// The framework whose names a target of this format has, as in the names of recipes: "hf" for safetensors.
// Empty for a format that takes any names.
std::string_view namesOfFormat(std::string_view format);
// The title of that framework for people: "Hugging Face".
std::string_view titleOfNames(std::string_view names);

// The recipe and rename rules that give a checkpoint the names that a target wants.
struct RecipeChoice {
    std::string recipe;                // may be two, "A+B"; empty = none is needed, none fits, or several fit
    std::vector<std::string> rename;   // rules to apply after it, which remove a wrapper's prefix
    bool known = false;                // the choice is certain: `recipe` fits, or the names are right already
    std::vector<std::string> missing;  // RecipeFit::missing of `recipe`
    std::string why;                   // the reasons in one sentence
    std::vector<std::string> candidates;  // recipes that fit equally well, where there are several
};
// `names`: from namesOfFormat(). `source`: the catalog that `fits` are for.
RecipeChoice chooseRecipe(const std::vector<RecipeFit>& fits, std::string_view names, const Catalog& source);

// The value of ConversionRequest::map for the recipe that chooseRecipe() chooses.
inline constexpr const char* kAutomaticRecipe = "auto";

// Calls applyRecipe() with the recipe that chooseRecipe() chooses for a target of `format`. `said` becomes a
// sentence that explains the choice. Where the request does not name kAutomaticRecipe, that none or several
// fit is no error: a prefix goes, and no recipe is applied. Errors: usage (none or several fit), cancelled,
// those of applyRecipe().
struct ConversionRequest;
Status applyFittingRecipe(const Checkpoint& source, const ConversionRequest& request, std::string_view format,
                          TargetRequest& target, std::string& said, const StopToken& stop);

// The directory of the config.json that belongs to a checkpoint. It is huggingface/ in the checkpoint, the
// checkpoint, or, on this machine, the same two of the directory above. Empty where there is none.
std::string modelBeside(const Checkpoint& checkpoint);
// modelBeside() as ConversionRequest::assets has to name it; empty where "auto" finds it.
std::string assetsBeside(const Checkpoint& checkpoint);

// The names of weights in `target` that the best-fitting recipe of the model's family does not know.
// `config`: the config.json of the model. Empty if all are known, or if no recipe of that family can be
// applied.
std::vector<std::string> unknownToFamily(const Catalog& target, const StatedConfig& config);

}  // namespace shardscope

// Which of the recipes that are built in fit a checkpoint, by the names of its weights.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/stop.h"
#include "engine/recipe.h"

namespace shardscope {

// A built-in recipe that turns the names of one framework into those of another, and what it does to the
// weights of a checkpoint.
struct RecipeFit {
    std::string recipe, description;
    std::string family, to, from;                             // "llama", "hf", "torchtitan"
    size_t weights = 0;                                       // that a step touches
    std::vector<std::string> left;                            // names of weights that no step touches
    std::vector<std::string> missing;                         // parameters that have no value: to be given
    std::vector<std::pair<std::string, std::string>> values;  // of the others, and where they are from
    size_t idle = 0;                                          // steps of its own that nothing matches
    bool ofModel = false;              // the configuration beside the checkpoint names this family
    std::vector<std::string> same;     // recipes further down that make the same of this checkpoint
    std::vector<std::string> results;  // the names that the weights get
    bool fits() const { return left.empty(); }
};

// Those that touch at least half of the weights, the best first; one for all that make the same.
// `model`: a directory whose config.json counts where the checkpoint has none; may be empty. Errors:
// cancelled.
Result<std::vector<RecipeFit>> fittingRecipes(const Checkpoint& source, const std::string& model,
                                              const StopToken& stop = {});

// What a target of this format calls things, as in the names of recipes: "hf" of safetensors; empty where any
// names will do.
std::string_view namesOfFormat(std::string_view format);
// How a person calls them: "Hugging Face".
std::string_view titleOfNames(std::string_view names);

// What makes the names of a checkpoint those that a target wants.
struct RecipeChoice {
    std::string recipe;               // empty = none is needed, none fits, or several do
    std::vector<std::string> rename;  // rules that come after it: a wrapper's prefix goes
    bool known = false;               // nothing is left to choose: with `recipe`, or the names are right
    std::vector<std::string> missing;
    std::string why;                      // a sentence that says all this
    std::vector<std::string> candidates;  // where several fit
};
// `names` as namesOfFormat() says. `weights` are the source's.
RecipeChoice chooseRecipe(const std::vector<RecipeFit>& fits, std::string_view names, const Catalog& source);

// As ConversionRequest::map: the recipe that chooseRecipe() chooses.
inline constexpr const char* kAutomaticRecipe = "auto";

// applyRecipe() with the recipe that chooseRecipe() chooses for a target of `format`; `said` becomes which
// one that is, a sentence. Errors: usage, where none or several fit; cancelled.
struct ConversionRequest;
Status applyFittingRecipe(const Checkpoint& source, const ConversionRequest& request, std::string_view format,
                          TargetRequest& target, std::string& said, const StopToken& stop);

// The directory with the config.json that belongs to a checkpoint: huggingface/ in it, itself, or, on this
// machine, the one above it. Empty where there is none.
std::string modelBeside(const Checkpoint& checkpoint);
// The same as ConversionRequest::assets has to name it: empty where "auto" finds it.
std::string assetsBeside(const Checkpoint& checkpoint);

// The names of weights in `target` that no recipe of this model's family knows, where there are some.
// `modelType` is that of a config.json. Empty, too, where no recipe is of that family.
std::vector<std::string> unknownToFamily(const Catalog& target, std::string_view modelType);

}  // namespace shardscope

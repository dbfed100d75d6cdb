#include <fmt/format.h>
#include <fmt/ranges.h>

#include "answers/documents.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/application.h"
#include "cli/text.h"
#include "engine/recipe.h"

namespace shardscope::cli {
namespace {

struct RecipesOptions {
    std::string name, source, model;
};

int listBuiltin(const Context& context) {
    if (context.json) {
        printJson(recipesJson());
        return 0;
    }
    const Style style{context.colored()};
    for (const BuiltinRecipe& recipe : builtinRecipes())
        fmt::print("{}\n  {}\n", style.bold(std::string(recipe.name)), recipeDescription(recipe));
    return 0;
}

void printFit(const Json& recipe, const Style& style) {
    const auto texts = [&](const char* key) { return recipe[key].get<std::vector<std::string>>(); };
    fmt::print("{}\n  {}\n", style.bold(recipe["name"].get<std::string>()),
               recipe["description"].get<std::string>());
    const auto weights = recipe["weights"].get<size_t>(), left = recipe["left_count"].get<size_t>();
    if (left == 0)
        fmt::print("  fits the names of all {}\n", counted(weights, "weight"));
    else
        fmt::print("  leaves {} of {} as they are: {}\n", countText(left), counted(left + weights, "weight"),
                   printable(listed(texts("left"), 3)));
    std::vector<std::string> numbers;
    for (const auto& [name, value] : recipe["values"].items())
        numbers.push_back(fmt::format("{} = {}", name, value.get<std::string>()));
    if (!numbers.empty()) fmt::print("  with {}\n", printable(fmt::format("{}", fmt::join(numbers, "; "))));
    for (const std::string& name : texts("missing"))
        fmt::print("  {} has no value: --set {}=N, or a config.json\n", name, name);
    if (const auto same = texts("same"); !same.empty())
        fmt::print("  the same of these names: {}\n", listed(same, same.size()));
}

// What fits a checkpoint, and which one `--map auto` takes.
Result<int> listFitting(const Context& context, const RecipesOptions& options) {
    SHARDSCOPE_ASSIGN(const Checkpoint checkpoint, context.open(options.source));
    SHARDSCOPE_ASSIGN(const Json json, recipesForJson(checkpoint, options.model, context.stop));
    if (context.json) {
        printJson(json);
        return 0;
    }
    const Style style{context.colored()};
    for (const Json& recipe : json["recipes"])
        printFit(recipe, style);
    for (const auto& [names, choice] : json["choices"].items())
        fmt::print("{} {}\n", style.bold(choice["title"].get<std::string>() + ":"),
                   printable(choice["why"].get<std::string>()));
    return 0;
}

Result<int> recipes(const Context& context, const RecipesOptions& options) {
    if (!options.source.empty()) return listFitting(context, options);
    if (options.name.empty()) return listBuiltin(context);
    SHARDSCOPE_ASSIGN(const std::string text, recipeText(options.name));
    fmt::print("{}", text);
    return 0;
}

}  // namespace

void addRecipes(CLI::App& app, Context& context) {
    CLI::App* verb = app.add_subcommand(
        "recipes", "Recipes that are built in (convert --map NAME), or those that fit a checkpoint");
    verb->footer(
        "Examples:\n  shardscope recipes\n  shardscope recipes llama-hf-from-megatron > my.json\n"
        "  shardscope recipes --for /checkpoints/step-1000");
    auto options = std::make_shared<RecipesOptions>();
    auto* name =
        verb->add_option("name", options->name, "Print this one as it is, to start a recipe of your own from")
            ->type_name("NAME");
    auto* source = verb->add_option("--for", options->source,
                                    "List those that fit the names of this checkpoint, the best first")
                       ->type_name("PATH")
                       ->excludes(name);
    verb->add_option("--assets", options->model,
                     "Take numbers that the checkpoint does not state from the config.json of this directory")
        ->type_name("DIR")
        ->needs(source);
    verb->add_flag("--json", context.json, "One JSON document on stdout");
    verb->callback(
        [&context, options] { context.verb = [&context, options] { return recipes(context, *options); }; });
}

}  // namespace shardscope::cli

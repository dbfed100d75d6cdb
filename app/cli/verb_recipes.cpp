#include <fmt/format.h>

#include "answers/documents.h"
#include "cli/application.h"
#include "cli/text.h"
#include "engine/recipe.h"

namespace shardscope::cli {
namespace {

Result<int> recipes(const Context& context, const std::string& name) {
    if (!name.empty()) {
        SHARDSCOPE_ASSIGN(const std::string text, recipeText(name));
        fmt::print("{}", text);
        return 0;
    }
    if (context.json) {
        printJson(recipesJson());
        return 0;
    }
    const Style style{context.colored()};
    for (const BuiltinRecipe& recipe : builtinRecipes())
        fmt::print("{}\n  {}\n", style.bold(std::string(recipe.name)), recipeDescription(recipe));
    return 0;
}

}  // namespace

void addRecipes(CLI::App& app, Context& context) {
    CLI::App* verb = app.add_subcommand("recipes", "Recipes that are built in (convert --map NAME)");
    verb->footer("Examples:\n  shardscope recipes\n  shardscope recipes llama-hf-from-megatron > my.json");
    auto name = std::make_shared<std::string>();
    verb->add_option("name", *name, "Print this one as it is, to start a recipe of your own from")
        ->type_name("NAME");
    verb->add_flag("--json", context.json, "One JSON document on stdout");
    verb->callback([&context, name] { context.verb = [&context, name] { return recipes(context, *name); }; });
}

}  // namespace shardscope::cli

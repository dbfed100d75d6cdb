#include "engine/recipe.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "engine/embedded.h"
#include "engine/recipe_fields.h"
#include "engine/recipe_steps.h"

namespace shardscope {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kRecipes = "recipes/", kSuffix = ".json";

const BuiltinRecipe* findBuiltin(std::string_view name) {
    for (const BuiltinRecipe& recipe : builtinRecipes()) {
        if (recipe.name == name) return &recipe;
    }
    return nullptr;
}

// For messages; what is not UTF-8 must not end the program.
std::string shown(const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

const std::vector<BuiltinRecipe>& builtinRecipes() {
    static const std::vector<BuiltinRecipe> recipes = [] {
        std::vector<BuiltinRecipe> all;
        for (auto [name, text] : embeddedFiles()) {
            if (!name.starts_with(kRecipes)) continue;
            name.remove_prefix(kRecipes.size());
            name.remove_suffix(kSuffix.size());
            all.push_back({name, text});
        }
        return all;
    }();
    return recipes;
}

Error wrongRecipe(std::string message) {
    return makeError(ErrorCode::usage, std::move(message)).withHint("docs/cli.md describes recipes");
}

namespace {

// "select", "drop": a list of patterns.
Result<std::vector<std::string>> patternsIn(const std::string& key, const Json& value) {
    if (!value.is_array()) return wrongRecipe(fmt::format("'{}' is not a list of patterns", key));
    std::vector<std::string> patterns;
    for (const auto& item : value) {
        if (!item.is_string())
            return wrongRecipe(fmt::format("'{}' holds {}, not a pattern", key, shown(item)));
        patterns.push_back(item.get<std::string>());
    }
    return patterns;
}

// An equals sign of a regular expression, escaped or not, as \x3D: in a rule of the command line the first
// one ends the expression.
std::string withoutEquals(const std::string& expression) {
    std::string out;
    for (size_t i = 0; i < expression.size(); ++i) {
        const bool escaped = expression[i] == '\\' && i + 1 < expression.size();
        if (escaped) ++i;
        if (escaped && expression[i] != '=') out += '\\';
        out += expression[i] == '=' ? "\\x3D" : std::string(1, expression[i]);
    }
    return out;
}

// "rename" and "cast" as rules of the command line.
Result<std::vector<std::string>> rulesIn(const std::string& key, const Json& value) {
    const bool rename = key == "rename";
    const char* first = rename ? "from" : "tensors";
    const char* second = rename ? "to" : "dtype";
    if (!value.is_array()) return wrongRecipe(fmt::format("'{}' is not a list", key));
    std::vector<std::string> rules;
    for (const auto& item : value) {
        if (!item.is_object() || item.size() != 2 || !item.contains(first) || !item.contains(second) ||
            !item[first].is_string() || !item[second].is_string()) {
            return wrongRecipe(fmt::format("'{}' holds {}, not {{\"{}\": text, \"{}\": text}}", key,
                                           shown(item), first, second));
        }
        const auto from = item[first].get<std::string>();
        rules.push_back((rename ? withoutEquals(from) : from) + '=' + item[second].get<std::string>());
    }
    return rules;
}

}  // namespace

Result<ConversionRequest> recipeRules(const Json& recipe) {
    if (recipe.is_discarded()) return wrongRecipe("the recipe is not JSON");
    if (!recipe.is_object()) return wrongRecipe("the recipe is not a JSON object");
    ConversionRequest rules;
    for (const auto& [key, value] : recipe.items()) {
        if (key == "schema") {
            if (value != kRecipeSchema)
                return wrongRecipe(fmt::format("the schema is {}, not \"{}\"", shown(value), kRecipeSchema));
        } else if (key == "select" || key == "drop") {
            SHARDSCOPE_ASSIGN((key == "select" ? rules.select : rules.exclude), patternsIn(key, value));
        } else if (key == "rename" || key == "cast") {
            SHARDSCOPE_ASSIGN((key == "rename" ? rules.rename : rules.cast), rulesIn(key, value));
        } else if (key == "steps" ? !value.is_array()
                                  : (key == "parameters" || key == "job") && !value.is_object()) {
            return wrongRecipe(fmt::format("'{}' is not {}", key, key == "steps" ? "a list" : "an object"));
        } else if (!std::ranges::count(std::array{"description", "sources", "steps", "parameters", "job"},
                                       key)) {
            return wrongRecipe(fmt::format("'{}' is not a step of a recipe", key));
        }
    }
    return rules;
}

std::string recipeDescription(const BuiltinRecipe& recipe) {
    const Json json = Json::parse(recipe.text, nullptr, false);
    return json.is_object() ? json.value("description", std::string()) : std::string();
}

Result<std::string> recipeText(const std::string& map) {
    if (const BuiltinRecipe* builtin = findBuiltin(map)) return std::string(builtin->text);
    std::ifstream in(map);
    if (!in) {
        Error error = systemError(errno, "open the recipe", map);
        if (map.find('/') == std::string::npos && !map.ends_with(".json"))
            error.hint = "'shardscope recipes' lists those that are built in";
        return error;
    }
    return std::string(std::istreambuf_iterator<char>(in), {});
}

namespace {

// The steps of a recipe, in its own terms. Its job is what the words beside --map have said already.
Result<TargetRequest> recipeSteps(const Json& recipe, const std::vector<std::string>& set,
                                  const std::string& beside) {
    SHARDSCOPE_ASSIGN(const ConversionRequest rules, recipeRules(recipe));
    SHARDSCOPE_ASSIGN(TargetRequest steps, targetRequest(rules));
    const auto parameters = RecipeParameters::make(recipe.value("parameters", Json::object()), set, beside);
    if (!parameters.ok()) return wrongRecipe(parameters.error().message);
    if (recipe.contains("steps")) {
        auto parsed = parseSteps(recipe["steps"], *parameters);
        if (!parsed.ok()) return wrongRecipe(parsed.error().message);
        steps.steps = std::move(parsed).value();
    }
    return steps;
}

}  // namespace

Status applyRecipe(const std::string& path, const std::vector<std::string>& set, const std::string& beside,
                   TargetRequest& request) {
    SHARDSCOPE_ASSIGN(const std::string text, recipeText(path));
    const Json recipe = Json::parse(text, nullptr, false);
    auto read = recipeSteps(recipe, set, beside);
    if (!read.ok()) return std::move(read).error().inFile(path);
    const TargetRequest& steps = *read;
    const auto prepend = [](auto& list, const auto& more) {
        list.insert(list.begin(), more.begin(), more.end());
    };
    prepend(request.select, steps.select);
    prepend(request.exclude, steps.exclude);
    prepend(request.steps, steps.steps);
    prepend(request.rename, steps.rename);
    prepend(request.cast, steps.cast);
    return {};
}

}  // namespace shardscope

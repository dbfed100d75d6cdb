#include "engine/recipe.h"

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

Result<std::vector<std::string>> recipePatterns(const std::string& key, const Json& value) {
    if (!value.is_array()) return wrongRecipe(fmt::format("'{}' is not a list of patterns", key));
    std::vector<std::string> patterns;
    for (const auto& item : value) {
        if (!item.is_string())
            return wrongRecipe(fmt::format("'{}' holds {}, not a pattern", key, shown(item)));
        patterns.push_back(item.get<std::string>());
    }
    return patterns;
}

Result<RecipePairs> recipePairs(const std::string& key, const Json& value) {
    const bool rename = key == "rename";
    const char* first = rename ? "from" : "tensors";
    const char* second = rename ? "to" : "dtype";
    if (!value.is_array()) return wrongRecipe(fmt::format("'{}' is not a list", key));
    RecipePairs pairs;
    for (const auto& item : value) {
        if (!item.is_object() || item.size() != 2 || !item.contains(first) || !item.contains(second) ||
            !item[first].is_string() || !item[second].is_string()) {
            return wrongRecipe(fmt::format("'{}' holds {}, not {{\"{}\": text, \"{}\": text}}", key,
                                           shown(item), first, second));
        }
        pairs.emplace_back(item[first].get<std::string>(), item[second].get<std::string>());
    }
    return pairs;
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

// The steps of a recipe, in its own terms.
Result<ConvertRequest> recipeSteps(const Json& recipe, const std::vector<std::string>& set,
                                   const std::string& beside) {
    ConvertRequest steps;
    Json declared = Json::object();
    for (const auto& [key, value] : recipe.items()) {
        if (key == "schema") {
            if (value != "shardscope.recipe/1")
                return wrongRecipe(
                    fmt::format("the schema is {}, not \"shardscope.recipe/1\"", shown(value)));
        } else if (key == "description" || key == "sources") {
            continue;
        } else if (key == "job") {
            // The rest of a conversion (request.h), which the words beside --map have said already.
            if (!value.is_object()) return wrongRecipe("'job' is not an object");
        } else if (key == "select" || key == "drop") {
            SHARDSCOPE_ASSIGN((key == "select" ? steps.select : steps.exclude), recipePatterns(key, value));
        } else if (key == "rename") {
            SHARDSCOPE_ASSIGN(const RecipePairs pairs, recipePairs(key, value));
            for (const auto& [from, to] : pairs)
                steps.rename.push_back({from, to});
        } else if (key == "cast") {
            SHARDSCOPE_ASSIGN(const RecipePairs pairs, recipePairs(key, value));
            for (const auto& [tensors, name] : pairs) {
                const auto dtype = dtypeFromName(name);
                if (!dtype) return wrongRecipe(fmt::format("{} is not a dtype", shown(name)));
                steps.cast.push_back({tensors, *dtype});
            }
        } else if (key == "parameters") {
            if (!value.is_object()) return wrongRecipe("'parameters' is not an object");
            declared = value;
        } else if (key == "steps") {
            if (!value.is_array()) return wrongRecipe("'steps' is not a list");
        } else {
            return wrongRecipe(fmt::format("'{}' is not a step of a recipe", key));
        }
    }
    const auto parameters = RecipeParameters::make(declared, set, beside);
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
                   ConvertRequest& request) {
    SHARDSCOPE_ASSIGN(const std::string text, recipeText(path));
    const Json recipe = Json::parse(text, nullptr, false);
    if (!recipe.is_object()) return wrongRecipe("the recipe is not a JSON object").inFile(path);
    auto read = recipeSteps(recipe, set, beside);
    if (!read.ok()) return std::move(read).error().inFile(path);
    const ConvertRequest& steps = *read;
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

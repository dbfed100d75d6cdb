#include "engine/recipe.h"

#include <cerrno>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "engine/recipe_steps.h"

namespace shardscope {
namespace {

using Json = nlohmann::json;

const BuiltinRecipe* findBuiltin(std::string_view name) {
    for (const BuiltinRecipe& recipe : builtinRecipes()) {
        if (recipe.name == name) return &recipe;
    }
    return nullptr;
}

Error wrong(const std::string& path, std::string message) {
    return makeError(ErrorCode::usage, std::move(message))
        .inFile(path)
        .withHint("docs/cli.md describes recipes");
}

Status readPatterns(const std::string& path, const std::string& key, const Json& value,
                    std::vector<std::string>& out) {
    if (!value.is_array()) return wrong(path, fmt::format("'{}' is not a list of patterns", key));
    for (const auto& item : value) {
        if (!item.is_string())
            return wrong(path, fmt::format("'{}' holds {}, not a pattern", key, item.dump()));
        out.push_back(item.get<std::string>());
    }
    return {};
}

// "rename" and "cast": objects of two texts.
Status readPairs(const std::string& path, const std::string& key, const Json& value, ConvertRequest& out) {
    const bool rename = key == "rename";
    const char* second = rename ? "to" : "dtype";
    const char* first = rename ? "from" : "tensors";
    if (!value.is_array()) return wrong(path, fmt::format("'{}' is not a list", key));
    for (const auto& item : value) {
        if (!item.is_object() || item.size() != 2 || !item.contains(first) || !item.contains(second) ||
            !item[first].is_string() || !item[second].is_string()) {
            return wrong(path, fmt::format("'{}' holds {}, not {{\"{}\": text, \"{}\": text}}", key,
                                           item.dump(), first, second));
        }
        if (rename) {
            out.rename.push_back({item[first].get<std::string>(), item[second].get<std::string>()});
            continue;
        }
        const auto dtype = dtypeFromName(item[second].get<std::string>());
        if (!dtype) return wrong(path, fmt::format("{} is not a dtype", item[second].dump()));
        out.cast.push_back({item[first].get<std::string>(), *dtype});
    }
    return {};
}

}  // namespace

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

Status applyRecipe(const std::string& path, const std::vector<std::string>& set, const std::string& beside,
                   ConvertRequest& request) {
    SHARDSCOPE_ASSIGN(const std::string text, recipeText(path));
    const Json recipe = Json::parse(text, nullptr, false);
    if (recipe.is_discarded() || !recipe.is_object()) return wrong(path, "the recipe is not a JSON object");

    ConvertRequest steps;
    Json declared = Json::object();
    for (const auto& [key, value] : recipe.items()) {
        if (key == "schema") {
            if (value != "shardscope.recipe/1")
                return wrong(path,
                             fmt::format("the schema is {}, not \"shardscope.recipe/1\"", value.dump()));
        } else if (key == "description" || key == "sources") {
            continue;
        } else if (key == "job") {
            // The rest of a conversion (recipeWords), which the words beside --map have said already.
            if (!value.is_object()) return wrong(path, "'job' is not an object");
        } else if (key == "select" || key == "drop") {
            SHARDSCOPE_TRY(readPatterns(path, key, value, key == "select" ? steps.select : steps.exclude));
        } else if (key == "rename" || key == "cast") {
            SHARDSCOPE_TRY(readPairs(path, key, value, steps));
        } else if (key == "parameters") {
            if (!value.is_object()) return wrong(path, "'parameters' is not an object");
            declared = value;
        } else if (key == "steps") {
            if (!value.is_array()) return wrong(path, "'steps' is not a list");
        } else {
            return wrong(path, fmt::format("'{}' is not a step of a recipe", key));
        }
    }
    const auto parameters = RecipeParameters::make(declared, set, beside);
    if (!parameters.ok()) return wrong(path, parameters.error().message);
    if (recipe.contains("steps")) {
        auto parsed = parseSteps(recipe["steps"], *parameters);
        if (!parsed.ok()) return wrong(path, parsed.error().message);
        steps.steps = std::move(parsed).value();
    }
    const auto prepend = [](auto& list, auto& more) { list.insert(list.begin(), more.begin(), more.end()); };
    prepend(request.select, steps.select);
    prepend(request.exclude, steps.exclude);
    prepend(request.steps, steps.steps);
    prepend(request.rename, steps.rename);
    prepend(request.cast, steps.cast);
    return {};
}

}  // namespace shardscope

#include "engine/recipe.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/similar.h"
#include "base/text.h"
#include "engine/adapter.h"
#include "engine/embedded.h"
#include "engine/engine.h"
#include "engine/model_config.h"
#include "engine/recipe_fields.h"
#include "engine/recipe_steps.h"
#include "engine/whole_file.h"

namespace shardscope {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kLargestRecipe = uint64_t{64} << 20;
constexpr std::string_view kRecipes = "recipes/", kParts = "recipe-parts/", kSuffix = ".json";

std::vector<BuiltinRecipe> embeddedRecipes(std::string_view directory) {
    std::vector<BuiltinRecipe> all;
    for (auto [name, text] : embeddedFiles()) {
        if (!name.starts_with(directory)) continue;
        name.remove_prefix(directory.size());
        name.remove_suffix(kSuffix.size());
        all.push_back({name, text});
    }
    return all;
}

const BuiltinRecipe* findBuiltin(std::string_view name) {
    static const std::vector<BuiltinRecipe> parts = embeddedRecipes(kParts);
    for (const auto* recipes : {&builtinRecipes(), &parts}) {
        for (const BuiltinRecipe& recipe : *recipes) {
            if (recipe.name == name) return &recipe;
        }
    }
    return nullptr;
}

// For messages; what is not UTF-8 must not end the program.
std::string shown(const Json& value) {
    return dumpJson(value);
}

}  // namespace

const std::vector<BuiltinRecipe>& builtinRecipes() {
    static const std::vector<BuiltinRecipe> recipes = embeddedRecipes(kRecipes);
    return recipes;
}

Error wrongRecipe(std::string message) {
    return makeError(ErrorCode::usage, std::move(message)).withHint("docs/recipes.md describes recipes");
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
        } else if (key == "adapter") {
            if (!value.is_object() || !value.contains("alpha") ||
                value.size() != (value.contains("root_of_rank") ? 2U : 1U))
                return wrongRecipe("'adapter' is not {\"alpha\": number, \"root_of_rank\": number}");
        } else if (key == "from_adapter") {
            const size_t fields =
                value.is_object() ? 1U + value.contains("fused_experts") + value.contains("dora") : 0;
            if (fields != value.size() || !value.contains("fused"))
                return wrongRecipe(
                    "'from_adapter' is not {\"fused\": number, \"fused_experts\": number, \"dora\": "
                    "number}");
        } else if (key == "leaves") {
            SHARDSCOPE_ASSIGN(const std::vector<std::string> unused, patternsIn(key, value));
        } else if (key == "arranges" ? !value.is_boolean()
                   : key == "steps"  ? !value.is_array()
                                     : (key == "parameters" || key == "job") && !value.is_object()) {
            return wrongRecipe(fmt::format("'{}' is not {}", key,
                                           key == "arranges" ? "true or false"
                                           : key == "steps"  ? "a list"
                                                             : "an object"));
        } else if (!std::ranges::count(
                       std::array{"description", "sources", "steps", "parameters", "arranges", "job"}, key)) {
            return wrongRecipe(fmt::format("'{}' is not a step of a recipe", key));
        }
    }
    return rules;
}

std::string recipeDescription(const BuiltinRecipe& recipe) {
    const Json json = Json::parse(recipe.text, nullptr, false);
    return json.is_object() ? json.value("description", std::string()) : std::string();
}

namespace {

std::string meantRecipe(const std::string& name) {
    std::vector<std::string> names;
    for (const BuiltinRecipe& recipe : builtinRecipes())
        names.emplace_back(recipe.name);
    const std::string meant = didYouMean(name, names);
    return meant.empty() ? meant : meant + " ";
}

}  // namespace

Result<std::string> recipeText(const std::string& map) {
    if (const BuiltinRecipe* builtin = findBuiltin(map)) return std::string(builtin->text);
    const size_t plus = map.find('+');
    if (plus != map.npos && findBuiltin(map.substr(0, plus)) && findBuiltin(map.substr(plus + 1))) {
        const auto include = [](const std::string& name) {
            return Json{{"step", "include"}, {"recipe", name}};
        };
        const Json both{{"schema", kRecipeSchema},
                        {"steps", {include(map.substr(0, plus)), include(map.substr(plus + 1))}}};
        return both.dump();
    }
    auto text = readWholeFile(map, kLargestRecipe);
    if (text.ok()) return text;
    Error error = std::move(text).error();
    if (error.code == ErrorCode::notFound && map.find('/') == std::string::npos && !map.ends_with(".json"))
        error.hint = meantRecipe(map) + "'shardscope recipes' lists those that are built in";
    return error;
}

namespace {

// A recipe and those that it includes, as one.
struct WholeRecipe {
    std::vector<PlacedStep> steps;
    Json parameters = Json::object();
    std::vector<std::string> drop;  // of those that are included
    std::optional<std::vector<std::string>> leaves;
};

// Puts a recipe's steps behind those that are there, an included recipe's in the place of the step that
// includes it. A step that stands under a condition hands it on.
Status addSteps(const Json& recipe, const std::string& name, const Json& when, int depth,
                WholeRecipe& whole) {
    constexpr int kDeepest = 8;
    if (depth > kDeepest) return wrongRecipe(fmt::format("'{}' includes itself, or too many others", name));
    const Json parameters = recipe.value("parameters", Json::object());
    for (const auto& [key, value] : parameters.items()) {
        if (!whole.parameters.contains(key)) whole.parameters[key] = value;
    }
    if (recipe.contains("leaves")) {
        SHARDSCOPE_ASSIGN(const std::vector<std::string> leaves, patternsIn("leaves", recipe["leaves"]));
        if (!whole.leaves) whole.leaves.emplace();
        whole.leaves->insert(whole.leaves->end(), leaves.begin(), leaves.end());
    }
    const bool arranges = recipe.value("arranges", false);
    size_t number = 0;
    for (Json step : recipe.value("steps", Json::array())) {
        ++number;
        if (step.is_object() && !when.is_null() && !step.contains("when")) step["when"] = when;
        if (!step.is_object() || step.value("step", Json()) != "include") {
            whole.steps.push_back({std::move(step), number, name, arranges});
            continue;
        }
        const auto wrong = [&](const std::string& message) {
            return wrongRecipe(
                fmt::format("step {}{} (include): {}", number, name.empty() ? "" : " of " + name, message));
        };
        for (const auto& [key, value] : step.items()) {
            if (key != "step" && key != "recipe" && key != "when" && key != "description")
                return wrong(fmt::format("it has no field '{}'", key));
        }
        const Json inner = step.value("recipe", Json());
        if (!inner.is_string()) return wrong("'recipe' is missing or not text");
        const auto innerName = inner.get<std::string>();
        const BuiltinRecipe* builtin = findBuiltin(innerName);
        if (!builtin) return wrong(fmt::format("'{}' is not a recipe that is built in", innerName));
        const Json included = Json::parse(builtin->text, nullptr, false);
        SHARDSCOPE_ASSIGN(const ConversionRequest rules, recipeRules(included));
        whole.drop.insert(whole.drop.end(), rules.exclude.begin(), rules.exclude.end());
        SHARDSCOPE_TRY(addSteps(included, innerName, step.value("when", Json()), depth + 1, whole));
    }
    return {};
}

// The steps of a recipe, in its own terms. Its job is what the words beside --map have said already.
Result<TargetRequest> recipeSteps(const Json& recipe, const std::vector<std::string>& set,
                                  const RecipeSource& source) {
    SHARDSCOPE_ASSIGN(const ConversionRequest rules, recipeRules(recipe));
    SHARDSCOPE_ASSIGN(TargetRequest steps, targetRequest(rules));
    WholeRecipe whole;
    SHARDSCOPE_TRY(addSteps(recipe, {}, {}, 0, whole));
    auto parameters = RecipeParameters::make(whole.parameters, set, source);
    if (!parameters.ok()) return wrongRecipe(parameters.error().message);
    auto parsed = parseSteps(whole.steps, *parameters);
    if (!parsed.ok()) return wrongRecipe(parsed.error().message);
    steps.steps = std::move(parsed).value();
    steps.exclude.insert(steps.exclude.end(), whole.drop.begin(), whole.drop.end());
    steps.leaves = std::move(whole.leaves);
    if (recipe.contains("adapter")) {
        auto alpha = parameters->number(recipe["adapter"]["alpha"]);
        if (!alpha.ok()) return wrongRecipe(alpha.error().message);
        steps.adapter = {alpha->value, false, alpha->missing};
        if (recipe["adapter"].contains("root_of_rank")) {
            auto root = parameters->number(recipe["adapter"]["root_of_rank"]);
            if (!root.ok()) return wrongRecipe(root.error().message);
            steps.adapter->rootOfRank = root->missing.empty() && root->value != 0;
        }
    }
    steps.values.assign(parameters->used().begin(), parameters->used().end());
    return steps;
}

Status applyRead(const Json& recipe, const std::string& path, const std::vector<std::string>& set,
                 const RecipeSource& source, TargetRequest& request) {
    auto read = recipeSteps(recipe, set, source);
    if (!read.ok()) return std::move(read).error().inFile(path);
    const TargetRequest& steps = *read;
    const auto prepend = [](auto& list, const auto& more) {
        list.insert(list.begin(), more.begin(), more.end());
    };
    if (steps.leaves) {
        if (!request.leaves) request.leaves.emplace();
        prepend(*request.leaves, *steps.leaves);
    }
    if (steps.adapter) request.adapter = steps.adapter;
    prepend(request.select, steps.select);
    prepend(request.exclude, steps.exclude);
    prepend(request.steps, steps.steps);
    prepend(request.rename, steps.rename);
    prepend(request.cast, steps.cast);
    prepend(request.values, steps.values);
    return {};
}

}  // namespace

Status applyRecipe(const std::string& path, const std::vector<std::string>& set, const RecipeSource& source,
                   TargetRequest& request) {
    SHARDSCOPE_ASSIGN(const std::string text, recipeText(path));
    return applyRead(Json::parse(text, nullptr, false), path, set, source, request);
}

RecipeSource recipeSource(const Checkpoint& source, const std::string& model) {
    return {statedConfig(source, model), source.catalog(),
            [&source](ObjectId o) { return source.reader->objectValue(o); }};
}

Status applyRecipe(const std::string& map, const std::vector<std::string>& set, const Checkpoint& source,
                   const std::string& model, TargetRequest& request) {
    SHARDSCOPE_ASSIGN(const std::string text, recipeText(map));
    Json recipe = Json::parse(text, nullptr, false);
    if (recipe.is_object() && recipe.contains("from_adapter") && recipe.contains("steps")) {
        SHARDSCOPE_TRY(recipeRules(recipe));
        const RecipeSource numbers = recipeSource(source, model);
        auto parameters = RecipeParameters::make(recipe.value("parameters", Json::object()), set, numbers);
        if (!parameters.ok()) return wrongRecipe(parameters.error().message).inFile(map);
        AdapterTarget target;
        for (const auto& [key, says] :
             {std::pair{"fused", &target.fused}, std::pair{"fused_experts", &target.fusedExperts},
              std::pair{"dora", &target.dora}}) {
            if (!recipe["from_adapter"].contains(key)) continue;
            auto number = parameters->number(recipe["from_adapter"][key]);
            if (!number.ok()) return wrongRecipe(number.error().message).inFile(map);
            *says = number->missing.empty() && number->value != 0;
        }
        SHARDSCOPE_ASSIGN(EvenAdapter even, evenAdapter(source, target));
        even.steps.insert(even.steps.end(), recipe["steps"].begin(), recipe["steps"].end());
        recipe["steps"] = std::move(even.steps);
        if (!even.scaling.empty()) request.values.emplace_back("alpha", std::move(even.scaling));
    }
    return applyRead(recipe, map, set, recipeSource(source, model), request);
}

}  // namespace shardscope

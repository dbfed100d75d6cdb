#include "engine/recipe.h"

#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace shardscope {
namespace {

Error wrong(const std::string& path, std::string message) {
    return makeError(ErrorCode::usage, std::move(message))
        .inFile(path)
        .withHint("docs/cli.md describes recipes");
}

}  // namespace

Status applyRecipe(const std::string& path, ConvertRequest& request) {
    std::ifstream in(path);
    if (!in) return systemError(errno, "open the recipe", path);
    nlohmann::json recipe = nlohmann::json::parse(in, nullptr, false);
    if (recipe.is_discarded() || !recipe.is_object()) return wrong(path, "the recipe is not a JSON object");

    ConvertRequest steps;
    for (const auto& [key, value] : recipe.items()) {
        if (key == "schema") {
            if (value != "shardscope.recipe/1")
                return wrong(path,
                             fmt::format("the schema is {}, not \"shardscope.recipe/1\"", value.dump()));
        } else if (key == "description") {
            continue;
        } else if (key == "job") {
            // What the window's wizard keeps beside the steps; it is for the window alone.
            if (!value.is_object()) return wrong(path, "'job' is not an object");
        } else if (key == "select" || key == "drop") {
            if (!value.is_array()) return wrong(path, fmt::format("'{}' is not a list of patterns", key));
            for (const auto& item : value) {
                if (!item.is_string())
                    return wrong(path, fmt::format("'{}' holds {}, not a pattern", key, item.dump()));
                (key == "select" ? steps.select : steps.exclude).push_back(item.get<std::string>());
            }
        } else if (key == "rename" || key == "cast") {
            const bool rename = key == "rename";
            const char* second = rename ? "to" : "dtype";
            const char* first = rename ? "from" : "tensors";
            if (!value.is_array()) return wrong(path, fmt::format("'{}' is not a list", key));
            for (const auto& item : value) {
                if (!item.is_object() || item.size() != 2 || !item.contains(first) ||
                    !item.contains(second) || !item[first].is_string() || !item[second].is_string()) {
                    return wrong(path, fmt::format("'{}' holds {}, not {{\"{}\": text, \"{}\": text}}", key,
                                                   item.dump(), first, second));
                }
                if (rename) {
                    steps.rename.push_back({item[first].get<std::string>(), item[second].get<std::string>()});
                    continue;
                }
                const auto dtype = dtypeFromName(item[second].get<std::string>());
                if (!dtype) return wrong(path, fmt::format("{} is not a dtype", item[second].dump()));
                steps.cast.push_back({item[first].get<std::string>(), *dtype});
            }
        } else {
            return wrong(path, fmt::format("'{}' is not a step of a recipe", key));
        }
    }
    const auto prepend = [](auto& list, auto& more) { list.insert(list.begin(), more.begin(), more.end()); };
    prepend(request.select, steps.select);
    prepend(request.exclude, steps.exclude);
    prepend(request.rename, steps.rename);
    prepend(request.cast, steps.cast);
    return {};
}

}  // namespace shardscope

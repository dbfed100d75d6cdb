#include <algorithm>
#include <array>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "engine/recipe.h"

namespace shardscope {
namespace {

using Json = nlohmann::json;

// The fields of "job" beside source and destination, and the option of `convert` that each stands for.
enum class Kind : uint8_t { text, list, flag, number };
struct Field {
    std::string_view name, option;
    Kind kind;
};
constexpr Field kFields[] = {
    {"format", "--to", Kind::text},
    {"variant", "--variant", Kind::text},
    {"max_file_size", "--max-file-size", Kind::text},
    {"weights_only", "--weights-only", Kind::flag},
    {"map", "--map", Kind::text},
    {"set", "--set", Kind::list},
    {"objects", "--objects", Kind::text},
    {"strict", "--strict", Kind::flag},
    {"fill_gaps", "--fill-gaps", Kind::text},
    {"mesh", "--mesh", Kind::text},
    {"shard", "--shard", Kind::list},
    {"stage", "--stage", Kind::list},
    {"like", "--like", Kind::text},
    {"split", "--split", Kind::text},
    {"verify", "--verify", Kind::text},
    {"on", "--on", Kind::text},
    {"threads", "--threads", Kind::number},
    {"memory", "--memory", Kind::text},
    {"io", "--io", Kind::text},
    {"overwrite", "--overwrite", Kind::flag},
    {"resume", "--resume", Kind::flag},
};

// Options of "source_options", each with a value: how the source is opened.
constexpr std::string_view kOpening[] = {"--format", "--variant", "--tp-dim", "--master-weights"};

class Words {
  public:
    explicit Words(std::string path) : path_(std::move(path)) {}
    std::vector<std::string> all{"convert"};

    Error wrong(std::string message) const {
        return makeError(ErrorCode::usage, std::move(message))
            .inFile(path_)
            .withHint("docs/cli.md describes recipes");
    }
    // A path, which must not be taken for an option.
    void path(const std::string& path) { all.push_back(path.starts_with('-') ? "./" + path : path); }
    void option(std::string_view name, const std::string& value) {
        if (value.empty() || value.starts_with('-')) {
            all.push_back(fmt::format("{}={}", name, value));
        } else {
            all.emplace_back(name);
            all.push_back(value);
        }
    }
    Status field(const Field& field, const Json& value) {
        const auto refuse = [&](std::string_view kind) {
            return wrong(fmt::format("'job.{}' is not {}", field.name, kind));
        };
        switch (field.kind) {
            case Kind::text:
                if (!value.is_string()) return refuse("a text");
                option(field.option, value.get<std::string>());
                break;
            case Kind::list:
                if (!value.is_array()) return refuse("a list of texts");
                for (const Json& item : value) {
                    if (!item.is_string()) return refuse("a list of texts");
                    option(field.option, item.get<std::string>());
                }
                break;
            case Kind::flag:
                if (!value.is_boolean()) return refuse("true or false");
                if (value.get<bool>()) all.emplace_back(field.option);
                break;
            case Kind::number:
                if (!value.is_number_unsigned()) return refuse("a number");
                option(field.option, std::to_string(value.get<uint64_t>()));
                break;
        }
        return {};
    }
    Status opening(const Json& value) {
        if (!value.is_array() || value.size() % 2 != 0)
            return wrong("'job.source_options' is not a list of words");
        for (size_t i = 0; i < value.size(); i += 2) {
            if (!value[i].is_string() || !value[i + 1].is_string())
                return wrong("'job.source_options' is not a list of words");
            const std::string name = value[i].get<std::string>();
            if (std::find(std::begin(kOpening), std::end(kOpening), name) == std::end(kOpening))
                return wrong(fmt::format("'job.source_options': '{}' is no option of opening", name));
            option(name, value[i + 1].get<std::string>());
        }
        return {};
    }

  private:
    std::string path_;
};

}  // namespace

Result<std::vector<std::string>> recipeWords(const std::string& path) {
    SHARDSCOPE_ASSIGN(const std::string text, recipeText(path));
    Words words(path);
    const Json recipe = Json::parse(text, nullptr, false);
    if (!recipe.is_object()) return words.wrong("the recipe is not a JSON object");
    const Json job = recipe.value("job", Json::object());
    if (!job.is_object()) return words.wrong("'job' is not an object");
    std::string missing;
    for (const char* name : {"source", "destination"}) {
        const auto it = job.find(name);
        if (it == job.end() || *it == "") {
            missing += fmt::format("{}'job.{}'", missing.empty() ? "" : " and ", name);
        } else if (!it->is_string()) {
            return words.wrong(fmt::format("'job.{}' is not a text", name));
        } else {
            words.path(it->get<std::string>());
        }
    }
    if (!missing.empty()) {
        Error error = words.wrong(fmt::format("the recipe holds no {}", missing));
        error.hint = fmt::format("add it, or give both: convert SRC DST --map {}", path);
        return error;
    }
    // What else it says is for --map, which leaves "job" alone.
    const bool steps = std::any_of(recipe.items().begin(), recipe.items().end(), [](const auto& item) {
        static constexpr std::array<std::string_view, 4> others{"schema", "description", "sources", "job"};
        return std::find(others.begin(), others.end(), item.key()) == others.end();
    });
    if (recipe.value("schema", Json("shardscope.recipe/1")) != "shardscope.recipe/1")
        return words.wrong("the schema is not \"shardscope.recipe/1\"");
    if (steps && job.contains("map")) return words.wrong("the recipe has steps, and 'job.map' names another");
    if (steps) words.option("--map", std::filesystem::absolute(path).string());
    for (const auto& [name, value] : job.items()) {
        if (name == "source" || name == "destination" || name == "source_options") continue;
        if (std::none_of(std::begin(kFields), std::end(kFields),
                         [&](const Field& f) { return f.name == name; }))
            return words.wrong(fmt::format("'job.{}' is not a field of a recipe", name));
    }
    if (const auto it = job.find("source_options"); it != job.end()) SHARDSCOPE_TRY(words.opening(*it));
    for (const Field& field : kFields) {
        if (const auto it = job.find(field.name); it != job.end()) SHARDSCOPE_TRY(words.field(field, *it));
    }
    return std::move(words.all);
}

}  // namespace shardscope

#include "answers/schemas.h"

#include <fmt/format.h>

#include "base/similar.h"

namespace shardscope {
namespace {

constexpr std::string_view kReference = "urn:shardscope:", kVersion = "/1", kOurs = "shardscope.";

std::string_view stem(std::string_view file) {
    return file.substr(0, file.rfind('.'));
}

const SchemaFile* fileOf(std::string_view name) {
    for (const SchemaFile& file : schemaFiles())
        if (stem(file.name) == name) return &file;
    return nullptr;
}

// Puts the schemas that `at` refers to, and those that these refer to, into `defs`, each once.
void collect(const Json& at, Json& defs) {
    if (at.is_object()) {
        const auto reference = at.find("$ref");
        const std::string to =
            reference != at.end() && reference->is_string() ? reference->get<std::string>() : std::string();
        if (to.starts_with(kReference)) {
            const std::string_view name =
                std::string_view(to).substr(kReference.size(), to.rfind(':') - kReference.size());
            const SchemaFile* const file = fileOf(name);
            if (file && !defs.contains(to)) {
                defs[to] = Json::parse(file->text);
                collect(Json(defs[to]), defs);
            }
        }
    }
    if (at.is_structured())
        for (const auto& each : at)
            collect(each, defs);
}

}  // namespace

Json schemasJson() {
    Json json{{"schema", "shardscope.schemas/1"}, {"schemas", Json::array()}};
    for (const SchemaFile& file : schemaFiles()) {
        const Json schema = Json::parse(file.text);
        json["schemas"].push_back(
            {{"name", stem(file.name)}, {"title", schema["title"]}, {"description", schema["description"]}});
    }
    return json;
}

Result<Json> schemaNamed(std::string_view name) {
    std::string_view wanted = name;
    if (wanted.starts_with(kOurs)) wanted.remove_prefix(kOurs.size());
    if (wanted.ends_with(kVersion)) wanted.remove_suffix(kVersion.size());
    const SchemaFile* const file = fileOf(wanted);
    if (!file) {
        Similar similar(wanted);
        for (const SchemaFile& each : schemaFiles())
            similar.see(stem(each.name));
        return makeError(ErrorCode::notFound, fmt::format("there is no schema '{}'", name))
            .withHint(similar.best().empty() ? std::string("'shardscope schema' lists them")
                                             : fmt::format("did you mean '{}'?", similar.best()));
    }
    Json schema = Json::parse(file->text), others = Json::object();
    collect(schema, others);
    for (auto& [id, other] : others.items())
        schema["$defs"][id] = std::move(other);
    return schema;
}

}  // namespace shardscope

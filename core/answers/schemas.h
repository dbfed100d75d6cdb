// The JSON Schemas (2020-12) of the documents that the command line prints; docs/schemas is their source.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "answers/json.h"

namespace shardscope {

struct SchemaFile {
    std::string_view name;  // "diff.json"
    std::string_view text;
};
const std::vector<SchemaFile>& schemaFiles();

// {schema, schemas:[{name, title, description}]}, by name: shardscope.schemas/1
Json schemasJson();
// One by its name: "diff", "diff/1" or "shardscope.diff/1". Schemas that it refers to are in its "$defs", so
// that it stands alone. Errors: notFound, with the name that may be meant.
Result<Json> schemaNamed(std::string_view name);

}  // namespace shardscope

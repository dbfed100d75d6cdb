// Whether a document is what its schema in docs/schemas says.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace shardscope::test {

// What of the document does not fit the schema that its "schema" names; empty = it fits, or is not one of
// those. Stricter than a schema alone: a field that the schema does not name is wrong, too, so that schemas
// stay complete.
std::string schemaViolation(const nlohmann::json& document);

// What of the schema itself this check does not know.
std::string unknownInSchema(const nlohmann::json& schema);

}  // namespace shardscope::test

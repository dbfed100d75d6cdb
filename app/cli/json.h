// The JSON documents of docs/cli.md, from the engine's values.
#pragma once

#include <cstdio>

#include <nlohmann/json.hpp>

#include "engine/engine.h"

namespace shardscope::cli {

using Json = nlohmann::ordered_json;

// A JSON document in which what drives a terminal or misleads a reader is escaped; it says the same.
std::string harmlessJson(std::string text);
// Names from files may be invalid UTF-8; what is not is replaced rather than refused.
std::string dump(const Json& json);
void printJson(const Json& json);                  // on stdout, one line
void printLine(std::FILE* out, const Json& json);  // one line, flushed

Json errorDocument(const Error& error);  // shardscope.error/1
Json pathJson(const Path& path);         // ["model", "layers", 0, "weight"]
Json dimsJson(DimSpan dims);
Json valueJson(const Value& value);
Json chunkJson(const Catalog& catalog, const ChunkInfo& chunk);
Json tensorJson(const Catalog& catalog, TensorId tensor, bool chunks);
Json meshJson(const std::optional<Mesh>& mesh);
Json planJson(const Plan& plan);          // shardscope.plan/1
Json diffJson(const DiffReport& report);  // shardscope.diff/1

}  // namespace shardscope::cli

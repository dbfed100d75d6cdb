// The JSON documents of docs/cli.md, from the engine's values.
#pragma once

#include <ctime>

#include <nlohmann/json.hpp>

#include "engine/diff.h"
#include "engine/engine.h"
#include "survey/flow_picture.h"

namespace shardscope {

using Json = nlohmann::ordered_json;

// A JSON document in which what drives a terminal or misleads a reader is escaped; it says the same.
std::string harmlessJson(std::string text);
// Names from files may be invalid UTF-8; what is not is replaced rather than refused.
std::string dump(const Json& json);
std::string isoTime(std::time_t seconds);  // "2026-11-02T04:10:00Z"

Json errorDocument(const Error& error);  // shardscope.error/1
Json pathJson(const Path& path);         // ["model", "layers", 0, "weight"]
Json dimsJson(DimSpan dims);
Json valueJson(const Value& value);
Json chunkJson(const Catalog& catalog, const ChunkInfo& chunk);
Json tensorJson(const Catalog& catalog, TensorId tensor, bool chunks);
Json meshJson(const std::optional<Mesh>& mesh);
Json planJson(const Plan& plan);          // shardscope.plan/1
Json flowJson(const FlowPicture& flow);   // its "flow"
Json diffJson(const DiffReport& report);  // shardscope.diff/1

}  // namespace shardscope

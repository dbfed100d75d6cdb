// The JSON beside the tensors: Hugging Face's *.safetensors.index.json, and the sharding info that torch's
// HuggingFaceStorageWriter puts into the header of each file.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "encoding/strict_json.h"
#include "model/region.h"

namespace shardscope::safetensors {

constexpr std::string_view kIndexSuffix = ".safetensors.index.json";
// That of MindSpore's unified_safetensors: what `weight_map` is, or an object with that alone.
constexpr std::string_view kMindSporeIndex = "param_name_map.json";

struct Index {
    NameSet names;                      // of weight_map
    std::vector<uint32_t> fileOf;       // for each name, an index into `files`
    std::vector<std::string> files;     // distinct, in the order of their first use
    std::optional<uint64_t> totalSize;  // absent when it is not a whole number (ColossalAI counts MiB)
    std::vector<std::pair<std::string, std::string>> texts;  // further text entries of "metadata"
};
// Errors: damaged with offset (rule meta.duplicate for a name that occurs twice), unsafe for a file name that
// leaves the directory (rule security.path).
Result<Index> parseIndex(std::string_view json);

// {"<header name>": {"saved_offsets": [...], "global_shape": [...], "logical_fqn": "..."}}; the last two only
// from newer writers.
struct ShardingEntry {
    Dims savedOffsets;
    std::optional<Dims> globalShape;
    std::string logicalName;
};
struct ShardingInfo {
    NameSet names;
    std::vector<ShardingEntry> entries;
};
Result<ShardingInfo> parseShardingInfo(std::string_view json);

}  // namespace shardscope::safetensors

// Parses pytorch_model-meta-dist-NNNNN.json: one rank's description of its shards in the distributed layout.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "encoding/strict_json.h"
#include "model/region.h"

namespace shardscope::colossalai {

struct PieceEntry {
    Dims offsets, lengths, globalShape;
    uint32_t file = UINT32_MAX;  // index into RankMetadata::files
    uint64_t rank = 0;           // global rank of the writer; used only as an identity
    bool hasRank = false;
};

struct RankMetadata {
    safetensors::NameSet names;
    std::vector<PieceEntry> entries;  // by index in `names`
    std::vector<std::string> files;   // distinct, as written; may be paths on the writer's machine
};

// Errors: damaged with the offset (rule file.truncated for a text that ends too early, meta.duplicate for a
// repeated name), limit.
Result<RankMetadata> parseRankMetadata(std::string_view json);

}  // namespace shardscope::colossalai

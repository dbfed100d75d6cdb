// pytorch_model-meta-dist-NNNNN.json: what one rank of the distributed layout says about its pieces.
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
    uint64_t rank = 0;           // global rank of the writer: an identity, nothing else
    bool hasRank = false;
};

struct RankMetadata {
    safetensors::NameSet names;
    std::vector<PieceEntry> entries;  // of `names`
    std::vector<std::string> files;   // as written, distinct; may be paths of the machine that saved
};

// Errors: damaged with the offset (rule file.truncated where the text only ends too early, meta.duplicate for
// a name that comes twice), limit.
Result<RankMetadata> parseRankMetadata(std::string_view json);

}  // namespace shardscope::colossalai

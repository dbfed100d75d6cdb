// Checks whether all rank files of a directory come from one save. Saving over a checkpoint of more ranks
// leaves stale files of the higher ranks, which ColossalAI's loader would load, too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/colossalai/rank_metadata.h"

namespace shardscope::colossalai {

struct RankFile {
    uint32_t id = 0;   // dist_id: pipeline stage * tp + tp rank
    std::string name;  // of the metadata file
    uint64_t size = 0;
    RankMetadata metadata;
};

struct SaveCheck {
    uint32_t tp = 1;            // tensor-parallel degree of rank 0's save
    std::vector<bool> foreign;  // by rank file: it is from another save
    bool whole = false;         // the other ranks hold every element of the tensors that they name
    bool setAside = false;      // ignore the foreign files: the others are whole without them
    std::string why;            // why files are foreign
};

// `ranks` must be sorted by id.
SaveCheck checkSave(const std::vector<RankFile>& ranks);

}  // namespace shardscope::colossalai

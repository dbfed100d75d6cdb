// Whether all ranks that are in a directory come from one save. Saving over a checkpoint of more ranks leaves
// the files of the higher ones, and ColossalAI's loader merges them in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/colossalai/rank_metadata.h"

namespace shardscope::colossalai {

struct RankFile {
    uint32_t id = 0;   // dist_id: pipeline stage times tp, plus tp rank
    std::string name;  // of the metadata file
    RankMetadata metadata;
};

struct SaveCheck {
    uint32_t tp = 1;            // of the save that rank 0 belongs to
    std::vector<bool> foreign;  // by rank file: from another save
    bool whole = false;         // the ranks that are not foreign hold every element of what they name
    bool setAside = false;      // the others are whole without the foreign ones
    std::string why;            // the foreign ones are foreign
};

// `ranks` sorted by id.
SaveCheck checkSave(const std::vector<RankFile>& ranks);

}  // namespace shardscope::colossalai

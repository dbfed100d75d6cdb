// torch_checkpointing, the successor of DCP: a file for each item and rank, and metadata.pkl.
// docs/formats/torch_checkpointing.md.
#pragma once

#include "formats/format.h"

namespace shardscope {

const Format& torchCheckpointingFormat();

}  // namespace shardscope

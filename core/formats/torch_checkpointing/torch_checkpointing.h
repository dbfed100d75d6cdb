// torch_checkpointing, the successor of DCP: one file for each item and rank, and metadata.pkl. Facts:
// docs/formats/torch_checkpointing.md.
#pragma once

#include "formats/format.h"

namespace shardscope {

const Format& torchCheckpointingFormat();

}  // namespace shardscope

// One torch.save file for each rank, with DTensors or ShardedTensors, as verl, Accelerate and FSDP scripts
// write. Facts: docs/formats/torch_ranks.md.
#pragma once

#include "formats/format.h"

namespace shardscope {

const Format& torchRanksFormat();

}  // namespace shardscope

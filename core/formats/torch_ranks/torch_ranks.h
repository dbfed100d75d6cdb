// One torch.save file for each rank, whose tensors are DTensors or ShardedTensors: what verl, Accelerate and
// FSDP scripts write. docs/formats/torch_ranks.md.
#pragma once

#include "formats/format.h"

namespace shardscope {

const Format& torchRanksFormat();

}  // namespace shardscope

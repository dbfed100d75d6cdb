// torch_xla FSDP checkpoints: a torch.save file for each rank. A file holds the state_dict with flat, padded,
// sharded parameters, and `shard_metadata` with the original ones. Read only. Facts:
// docs/formats/xla_fsdp.md.
#pragma once

#include "formats/format.h"

namespace shardscope {

const Format& xlaFsdpFormat();

}  // namespace shardscope

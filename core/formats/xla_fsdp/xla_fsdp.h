// Checkpoints of torch_xla's FSDP: one torch.save file for each rank. Each file holds a state_dict with
// flattened, padded and sharded parameters, and `shard_metadata`, which states their original names and
// shapes. Read only. See docs/formats/xla_fsdp.md.
#pragma once

#include "formats/format.h"

namespace shardscope {

const Format& xlaFsdpFormat();

}  // namespace shardscope

// Checkpoints of torch_xla's FSDP: a torch.save file for each rank with its model's state_dict, whose
// parameters are flat, padded and cut, and `shard_metadata`, which says what they were. Read only.
// docs/formats/xla_fsdp.md.
#pragma once

#include "formats/format.h"

namespace shardscope {

const Format& xlaFsdpFormat();

}  // namespace shardscope

// What Megatron-Core saves: torch_dist (a DCP underneath), zarr, and the mp_rank_* directories of
// --ckpt-format torch. Read: core 0.6 to 0.19. Written: torch_dist, as core 0.16 loads it.
// docs/formats/megatron.md.
#pragma once

#include "formats/format.h"

namespace shardscope {

const Format& megatronFormat();

}  // namespace shardscope

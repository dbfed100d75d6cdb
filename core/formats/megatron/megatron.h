// Megatron-Core checkpoints: torch_dist (based on DCP), zarr, and the mp_rank_* directories of --ckpt-format
// torch. Reads core 0.6 to 0.19. Writes torch_dist for core 0.16. Facts: docs/formats/megatron.md.
#pragma once

#include "formats/format.h"

namespace shardscope {

const Format& megatronFormat();

}  // namespace shardscope

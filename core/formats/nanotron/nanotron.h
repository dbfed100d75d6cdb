// nanotron checkpoints: a safetensors file for each parameter and rank, whose header states its slices of the
// whole; the optimizer in torch.save files for each rank. Read only. Facts: docs/formats/nanotron.md.
#pragma once

#include "formats/format.h"

namespace shardscope {

const Format& nanotronFormat();

}  // namespace shardscope

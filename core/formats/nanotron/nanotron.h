// Checkpoints of nanotron: one safetensors file for each parameter and rank, whose header states which slices
// of the whole it holds, and torch.save files of the optimizer for each rank. Read only. See
// docs/formats/nanotron.md.
#pragma once

#include "formats/format.h"

namespace shardscope {

const Format& nanotronFormat();

}  // namespace shardscope

// Checkpoints of nanotron: a safetensors file for each parameter and rank, which says which slices of the
// whole it holds, and torch.save files of the optimizer for each rank. Read only. docs/formats/nanotron.md.
#pragma once

#include "formats/format.h"

namespace shardscope {

const Format& nanotronFormat();

}  // namespace shardscope

// Checkpoints of ColossalAI's checkpoint IO, distributed and gathered. Facts: docs/formats/colossalai.md.
#pragma once

#include "formats/format.h"

namespace shardscope {

const Format& colossalaiFormat();

}  // namespace shardscope

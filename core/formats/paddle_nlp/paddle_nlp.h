// PaddleNLP's checkpoints of hybrid-parallel training: .pdparams and .pdopt files for each rank, and the
// unified checkpoint in safetensors. Read only.
#pragma once

#include "formats/format.h"

namespace shardscope {

const Format& paddleNlpFormat();

}  // namespace shardscope

// DeepSpeed checkpoints: ZeRO 0 to 3, pipelines, tensor parallelism, experts, and universal checkpoints.
// Facts: docs/formats/deepspeed.md.
#pragma once

#include "formats/format.h"

namespace shardscope {

const Format& deepspeedFormat();

}  // namespace shardscope

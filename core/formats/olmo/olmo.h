// Checkpoints of OLMo's checkpointers, except plain DCP. Facts: docs/formats/olmo.md.
#pragma once

#include "formats/format.h"

namespace shardscope {

const Format& olmoFormat();

}  // namespace shardscope

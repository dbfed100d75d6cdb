// safetensors: one file or Hugging Face's sharded set with its index, DCP's sharded safetensors, and files
// with OLMo's nested keys or objects. Facts and their sources: docs/formats/safetensors.md.
#pragma once

#include "formats/format.h"

namespace shardscope {

const Format& safetensorsFormat();

}  // namespace shardscope

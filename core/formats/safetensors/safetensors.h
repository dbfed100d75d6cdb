#pragma once

#include "formats/format.h"

namespace shardscope {

const Format& safetensorsFormat();

}  // namespace shardscope

#pragma once

#include "formats/format.h"

namespace shardscope {

const Format& torchSaveFormat();

}  // namespace shardscope

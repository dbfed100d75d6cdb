#pragma once

#include "formats/format.h"

namespace shardscope {

const Format& dcpFormat();

}  // namespace shardscope

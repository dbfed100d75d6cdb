// What OLMo's checkpointers write, except for plain DCP: docs/formats/olmo.md.
#pragma once

#include "formats/format.h"

namespace shardscope {

const Format& olmoFormat();

}  // namespace shardscope

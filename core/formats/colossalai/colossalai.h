// What ColossalAI's checkpoint IO writes: docs/formats/colossalai.md.
#pragma once

#include "formats/format.h"

namespace shardscope {

const Format& colossalaiFormat();

}  // namespace shardscope

// PaddlePaddle: reads and writes distributed checkpoints ({rank}_{id}.distcp and {id}.metadata), reads files
// of paddle.save.
#pragma once

#include "formats/format.h"

namespace shardscope {

const Format& paddleFormat();

}  // namespace shardscope

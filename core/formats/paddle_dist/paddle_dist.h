// PaddlePaddle: distributed checkpoints ({rank}_{id}.distcp + {id}.metadata) in and out, files of paddle.save
// in.
#pragma once

#include "formats/format.h"

namespace shardscope {

const Format& paddleFormat();

}  // namespace shardscope

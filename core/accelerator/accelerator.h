// Process groups of libtorch, and the GPU that makes a worker's tiles: opened at run time, where they are.
#pragma once

#include "cluster/accelerator.h"

namespace shardscope {

Accelerator accelerator();

}  // namespace shardscope

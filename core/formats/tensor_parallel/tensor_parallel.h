// A model in one file for each tensor-parallel rank, as serving engines and Meta write. All files use the
// same names and do not state how tensors are sharded. Facts: docs/formats/tensor_parallel.md.
#pragma once

#include "formats/format.h"

namespace shardscope {

const Format& tensorParallelFormat();

}  // namespace shardscope

// A model in files of tensor-parallel ranks, all of which use the same names, without a word on how they were
// cut: what serving engines and Meta write. docs/formats/tensor_parallel.md.
#pragma once

#include "formats/format.h"

namespace shardscope {

const Format& tensorParallelFormat();

}  // namespace shardscope

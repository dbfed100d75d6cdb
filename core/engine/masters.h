// Master weights: the fp32 originals of 16-bit parameters, in the optimizer's state.
#pragma once

#include <vector>

#include "model/catalog.h"

namespace shardscope {

// The master of each tensor, by the names that frameworks give it; kNone where there is none. Empty: there
// are none at all. A master has the shape of its parameter and a dtype of more precision.
//   optimizer.state.<parameter>.fp32        DeepSpeed (ZeRO 1 to 3, BF16_Optimizer, universal)
//   optimizer.state.fp32_param.<parameter>, optimizer.state.param.<parameter>  Megatron-Core
//   <parameter>.master_weight               PaddleNLP
//   ...<parameter>.master_param, ...        others that keep them by the names of parameters
std::vector<TensorId> mastersOf(const Catalog& catalog);

// A tensor that holds masters of many parameters, of which no name says whose they are (Megatron's buckets of
// dp_reshardable); kNone = there is none.
TensorId bucketOfMasters(const Catalog& catalog);

}  // namespace shardscope

// What `shardscope average` adds to a conversion: the weights, and what becomes of each tensor. Private to
// this room.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace shardscope {

// The weights of `count` checkpoints in the order of training, of which the sum is one unless `raw`. `rule`:
//   ""       the same for all ("uniform")
//   1,2,...  as many numbers
//   NAME     of a decay of the learning rate that the average stands for: "linear", "minus-sqrt", "cosine"
//   FILE     numbers, separated by spaces, commas or line ends; a JSON list will do
// For a decay f from 1 to 0, the weights are f(i/n) - f((i+1)/n), the first 1 - f(1/n) and the last
// f((n-1)/n) (arXiv:2507.17634, section 3; NVIDIA/Megatron-LM#5114, tools/checkpoint/weighted_merge.py).
// Errors: usage, and those of reading the file.
Result<std::vector<double>> averageWeights(const std::string& rule, size_t count, bool raw);

// Opens the other inputs of an average and makes a target of each, as `specFor` does for the source.
// `p.average` says what becomes of each tensor. What does not fit goes to `impossible`. Errors: usage; those
// of opening and of `specFor`.
using SpecFor = std::function<Result<TargetSpec>(const Checkpoint& source)>;
Status prepareAverage(PreparedConversion& p, const ConversionRequest& request, const SpecFor& specFor,
                      const StopToken& stop, std::vector<PlanLeftOut>& impossible);

}  // namespace shardscope

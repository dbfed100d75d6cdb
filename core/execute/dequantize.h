// Shows quantized weights (model/quantized.h) as the tensors that they stand for. Their values are computed
// while they are read, in blocks, from the parts that the source stores: nothing else has to know of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/stop.h"
#include "formats/format.h"
#include "model/quantized.h"

namespace shardscope {

// The source with these weights, each in its dtype (float32, float16 or bfloat16), in place of their parts;
// all else is as the source has it. The weights are whole: without a problem, with a shape.
//
// Values are those that the scheme's own library computes, in its order of operations, rounded where it
// rounds:
//   fp8, int8      value (less its zero point) times scale. With `_scale` the product is rounded to the dtype
//                  of the scale (compressed-tensors) or, by Model Optimizer, factors and product to the
//                  dtype. Else in float32.
//   packed, GPTQ, AWQ  value less zero point, times scale, rounded to the dtype of the scale
//   NVFP4          value times (scale times second scale, or over it for compressed-tensors), in float32
//   MXFP4          value times 2^(exponent - 127)
//   NF4, FP4       the table's value times the scale of its block, in float32; a nested scale is first
//                  (nested table's value times its own scale) plus the offset
//   bnb int8       value times the row's greatest magnitude, times 1 / 127 as a number of float32
// At the end the value is rounded to the dtype, to nearest, ties to even.
// `directory`: what the paths of the catalog's files are relative to, for messages.
// Errors: limit (a weight that is too large); those of the source's locate() come when a weight is read.
Result<std::unique_ptr<Reader>> dequantizedReader(std::shared_ptr<const Reader> source, std::string directory,
                                                  std::vector<QuantizedWeight> weights,
                                                  std::vector<DType> dtypes, const StopToken& stop);

}  // namespace shardscope

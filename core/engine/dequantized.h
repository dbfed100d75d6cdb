// Quantized weights as plain ones, for what is added to some of them. Private to this room.
#pragma once

#include <set>
#include <string>

#include "engine/quantized.h"

namespace shardscope {

// As dequantized(checkpoint, dtype, stop), but with the weights `wide` as float32: something is added to them
// before they are rounded.
Result<Checkpoint> dequantized(const Checkpoint& checkpoint, DType dtype, const StopToken& stop,
                               const std::set<std::string, std::less<>>& wide);

}  // namespace shardscope

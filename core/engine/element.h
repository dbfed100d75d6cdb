// Single elements as numbers, for statistics. Not for bulk conversion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "model/dtype.h"

namespace shardscope {

// The element at `bytes` (little-endian) as a double: exact for all types but 64-bit integers above 2^53.
// Complex types give their magnitude; types without a numeric meaning (bits8, packed quantized) their bit
// pattern.
double elementValue(DType dtype, const std::byte* bytes);

// As text that reads back to the same value.
std::string elementText(DType dtype, const std::byte* bytes);

}  // namespace shardscope

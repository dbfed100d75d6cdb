// Single elements as numbers, for statistics and comparisons. Not for bulk conversion.
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

struct ElementDistance {
    double absolute =
        0;  // |a - b|; infinity when one of them is NaN or they are infinities of different sign
    double relative = 0;  // |a - b| / max(|a|, |b|)
    uint64_t ulp = 0;     // representable values between them; real float types only
};
ElementDistance elementDistance(DType dtype, const std::byte* a, const std::byte* b);

}  // namespace shardscope

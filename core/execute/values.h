// Work on the elements of a tile in memory: what is counted, and what turns stored bytes into true values.
// For this room and for validate, which looks at values as well.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "execute/executor.h"
#include "model/dtype.h"

namespace shardscope {

inline size_t bytesOfElements(DType dtype, int64_t elements) {
    return static_cast<size_t>(static_cast<uint64_t>(elements) * dtypeBits(dtype) / 8);
}

// Adds the counts of `bytes` to `counts`.
void countValues(DType dtype, std::span<const std::byte> bytes, ValueCounts& counts);

// Swaps the byte order, conjugates and negates in place, in this order.
void applyTransform(DType dtype, bool swap, bool conjugate, bool negate, std::span<std::byte> bytes);

// Bytes of one element (at most 16) that stands where no chunk gives a value; nullopt when the dtype has no
// NaN.
struct FillPattern {
    std::byte bytes[16]{};
    size_t size = 0;
};
std::optional<FillPattern> fillPattern(DType dtype, FillGaps fill);
void fillWith(const FillPattern& pattern, std::span<std::byte> bytes);

}  // namespace shardscope

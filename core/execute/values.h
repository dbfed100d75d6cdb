// Work on the elements of a tile in memory: what is counted, and what turns stored bytes into true values.
// For this room and for validate, which looks at values as well.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

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

// Whole pages of a file that hold zeros alone, in the midst of other values and of a row: what was written
// there is lost, after a power loss or in a copy that was interrupted. Zeros that belong to a tensor begin
// and end with its rows, or anywhere; only by a chance of one in a million with pages.
struct ZeroPages {
    uint64_t first = 0;  // byte of the file
    uint64_t count = 0;
};
// Where the bytes are that are looked at.
struct BytesAt {
    uint64_t offset = 0;  // in the file
    uint64_t row = 0;     // bytes of a row of the chunk, and how far into one the bytes begin
    uint64_t intoRow = 0;
    bool more = false;  // of the chunk before them, behind them
    bool moreBehind = false;
};
// "2 pages of 4,096 bytes from byte 8,192 of the file"; and what is wrong with them.
std::string lostPagesText(const ZeroPages& pages);
constexpr char kLostPages[] =
    "zeros alone fill whole pages of the file, in the midst of rows of other values: what belongs there was "
    "never written, or is lost";
ZeroPages zeroPages(DType dtype, std::span<const std::byte> bytes, const BytesAt& at);

// Bytes of one element (at most 16) that stands where no chunk gives a value; nullopt when the dtype has no
// NaN.
struct FillPattern {
    std::byte bytes[16]{};
    size_t size = 0;
};
std::optional<FillPattern> fillPattern(DType dtype, FillGaps fill);
void fillWith(const FillPattern& pattern, std::span<std::byte> bytes);

}  // namespace shardscope

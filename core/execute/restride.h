// Elements that are stored with unusual strides (views, transposes, expanded tensors), brought into row-major
// order. Private to this room.
#pragma once

#include "base/stop.h"
#include "model/region.h"
#include "storage/file_system.h"

namespace shardscope {

// Empty strides, or those of a dense row-major box (strides of dimensions of length 1 do not matter).
bool isRowMajor(DimSpan strides, DimSpan lengths);

// Elements [lo, hi) of the box's order from `stored`, the bytes from its first element on.
void restrideRange(int64_t lo, int64_t hi, DimSpan lengths, DimSpan strides, size_t elementBytes,
                   const std::byte* stored, std::byte* out);

// Writes the whole box row-major to `out` from byte 0 on, in blocks that are long along the fastest
// dimensions of both sides. Takes about `memory` bytes. Each stored byte is read once, except where elements
// overlap. Adds to `bytesRead`.
Status restrideToFile(const ReadFile& file, uint64_t offset, DimSpan lengths, DimSpan strides,
                      size_t elementBytes, uint64_t memory, WriteFile& out, const StopToken& stop,
                      uint64_t& bytesRead);

}  // namespace shardscope

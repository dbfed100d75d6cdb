// Elements that are stored with unusual strides (views, transposes, expanded tensors), brought into row-major
// order. Private to this room.
#pragma once

#include <functional>
#include <span>

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
// dimensions of both sides. `stored` reads elements from the given one on, counted from the box's first.
// Takes about `memory` bytes. Each stored byte is read once, except where elements overlap.
using StoredElements = std::function<Status(int64_t first, std::span<std::byte> bytes)>;
Status restrideToFile(const StoredElements& stored, DimSpan lengths, DimSpan strides, size_t elementBytes,
                      uint64_t memory, WriteFile& out, const StopToken& stop);

}  // namespace shardscope

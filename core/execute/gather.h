// Moving elements between a box's own order and the tensor's order, and between arbitrary strides. Private to
// this room.
#pragma once

#include <cstddef>
#include <cstring>

#include "model/region.h"

namespace shardscope {

// Calls rows(boxIndex, position, runLength, rowCount, rowStride) for the box's elements [first, last):
// rowCount runs of runLength elements that are contiguous in both orders. The runs are consecutive in the
// box, and rowStride apart in the tensor.
template <class Rows>
void forEachRows(int64_t first, int64_t last, DimSpan shape, DimSpan offsets, DimSpan lengths, Rows&& rows) {
    if (first >= last) return;
    const int rank = static_cast<int>(shape.size());
    int inner = rank;
    int64_t runLength = 1;
    int64_t stride = 1;  // of the dimension before `inner`
    while (inner > 0) {
        --inner;
        runLength *= lengths[inner];
        stride *= shape[inner];
        if (lengths[inner] != shape[inner]) break;
    }
    // Outer dimensions that move at all, innermost first.
    struct Outer {
        int64_t length, stride, index;
    } outer[kMaxRank];
    int count = 0;
    int64_t run = first / runLength;
    for (int d = inner; d-- > 0;) {
        if (lengths[d] > 1) {
            outer[count++] = {lengths[d], stride, run % lengths[d]};
            run /= lengths[d];
        }
        stride *= shape[d];
    }
    int64_t position = positionOf(first / runLength * runLength, shape, offsets, lengths);
    const auto advance = [&](int64_t by) {
        if (count == 0) return;
        outer[0].index += by;
        position += by * outer[0].stride;
        for (int d = 0; outer[d].index == outer[d].length; ++d) {
            position -= outer[d].length * outer[d].stride;
            outer[d].index = 0;
            if (d + 1 == count) break;
            ++outer[d + 1].index;
            position += outer[d + 1].stride;
        }
    };
    if (const int64_t skip = first % runLength; skip != 0) {
        const int64_t n = std::min(runLength - skip, last - first);
        rows(first, position + skip, n, int64_t{1}, int64_t{0});
        first += n;
        advance(1);
    }
    while (first < last) {
        const int64_t full = (last - first) / runLength;
        if (full == 0) {
            rows(first, position, last - first, int64_t{1}, int64_t{0});
            return;
        }
        const int64_t n = count == 0 ? 1 : std::min(outer[0].length - outer[0].index, full);
        rows(first, position, runLength, n, count == 0 ? 0 : outer[0].stride);
        first += n * runLength;
        advance(n);
    }
}

// Copies `rows` runs of `bytes` bytes; the runs are dstStride and srcStride bytes apart.
void copyRows(std::byte* dst, ptrdiff_t dstStride, const std::byte* src, ptrdiff_t srcStride, size_t bytes,
              int64_t rows);

// Copies a box of elements between two memories with strides in elements, blocked so that both sides stay in
// the cache. `elementBytes` is 1, 2, 4, 8 or 16.
void copyStrided(std::byte* dst, DimSpan dstStrides, const std::byte* src, DimSpan srcStrides,
                 DimSpan lengths, size_t elementBytes);

// Cuts [first, last) of a box's own order into boxes: a partial head, whole slices, a partial tail, for each
// dimension. Calls part(start, offsets, lengths) for each. `start` is where the part begins in the order; it
// is contiguous there.
template <class Part>
void forEachPart(int64_t first, int64_t last, DimSpan lengths, Part&& part) {
    const size_t rank = lengths.size();
    Dims offsets(rank), sizes(rank);
    while (first < last) {
        // The widest dimension whose slice starts here and fits.
        int64_t slice = 1;
        size_t d = rank;
        while (d > 0 && lengths[d - 1] > 0 && first % (slice * lengths[d - 1]) == 0 &&
               slice * lengths[d - 1] <= last - first) {
            slice *= lengths[--d];
        }
        int64_t rest = first;
        for (size_t i = rank; i-- > 0;) {
            offsets[i] = rest % lengths[i];
            rest /= lengths[i];
            sizes[i] = i >= d ? lengths[i] : 1;
        }
        int64_t n = 1;
        if (d > 0) {
            n = std::min(lengths[d - 1] - offsets[d - 1], (last - first) / slice);
            sizes[d - 1] = n;
        }
        part(first, DimSpan(offsets), DimSpan(sizes));
        first += n * slice;
    }
}

}  // namespace shardscope

// Boxes in a tensor's index space, and the arithmetic of row-major order that the tile design stands on. The
// row-major order of a box is the tensor's order restricted to that box. So a contiguous range of the
// tensor's order is, in each box, a contiguous range of the box's own order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace shardscope {

using Dims = std::vector<int64_t>;
using DimSpan = std::span<const int64_t>;

constexpr int kMaxRank = 64;                   // dimensions; torch's practical limit
constexpr int64_t kMaxDim = int64_t{1} << 48;  // elements along one dimension

// A half-open box: offsets[i] <= index[i] < offsets[i] + lengths[i]. Rank 0 = the one element of a scalar.
struct Box {
    Dims offsets;
    Dims lengths;
    bool operator==(const Box&) const = default;
};

// [start, stop) of the row-major order of a box.
struct FlatRange {
    int64_t start = 0;
    int64_t stop = 0;
    bool operator==(const FlatRange&) const = default;
};

// Product of lengths; shapes in a Catalog have been checked, so this cannot overflow there.
int64_t elementCount(DimSpan lengths);
Dims rowMajorStrides(DimSpan shape);
std::string formatDims(DimSpan dims);                     // "[2, 3]"
std::string formatBox(DimSpan offsets, DimSpan lengths);  // "[0:2, 4:8]"

bool boxIsEmpty(DimSpan lengths);
bool boxInside(DimSpan offsets, DimSpan lengths, DimSpan shape);
std::optional<Box> intersect(DimSpan offsetsA, DimSpan lengthsA, DimSpan offsetsB, DimSpan lengthsB);

// How many elements of the box come before element `position` of the tensor's row-major order, 0 <= position
// <= numel. With it, the elements of the box inside tensor range [a, b) are the box range [elementsBefore(a),
// elementsBefore(b)).
int64_t elementsBefore(int64_t position, DimSpan shape, DimSpan offsets, DimSpan lengths);

// Tensor position of element `index` of the box's own order, 0 <= index < count.
int64_t positionOf(int64_t index, DimSpan shape, DimSpan offsets, DimSpan lengths);

// Calls run(boxStart, tensorPosition, count) for each maximal run of the box's elements [first, last) that is
// contiguous in the tensor's order, in order.
template <class Run>
void forEachRun(int64_t first, int64_t last, DimSpan shape, DimSpan offsets, DimSpan lengths, Run&& run) {
    if (first >= last) return;
    const int rank = static_cast<int>(shape.size());
    // Trailing dimensions that the box covers whole, and the one before them, make up a run.
    int inner = rank;
    int64_t runLength = 1;
    while (inner > 0) {
        --inner;
        runLength *= lengths[inner];
        if (lengths[inner] != shape[inner]) break;
    }
    while (first < last) {
        const int64_t inRun = first % runLength;
        const int64_t count = std::min(runLength - inRun, last - first);
        run(first, positionOf(first, shape, offsets, lengths), count);
        first += count;
    }
}

}  // namespace shardscope

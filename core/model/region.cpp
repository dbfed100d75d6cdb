#include "model/region.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace shardscope {

int64_t elementCount(DimSpan lengths) {
    int64_t count = 1;
    for (int64_t l : lengths)
        count *= l;
    return count;
}

Dims rowMajorStrides(DimSpan shape) {
    Dims strides(shape.size());
    int64_t stride = 1;
    for (size_t i = shape.size(); i-- > 0;) {
        strides[i] = stride;
        stride *= std::max<int64_t>(shape[i], 1);
    }
    return strides;
}

std::string formatDims(DimSpan dims) {
    return fmt::format("[{}]", fmt::join(dims, ", "));
}

std::string formatBox(DimSpan offsets, DimSpan lengths) {
    std::string text = "[";
    for (size_t i = 0; i < offsets.size(); ++i) {
        // Also shown for boxes that were not checked yet, so the sum must not overflow.
        const auto end =
            static_cast<int64_t>(static_cast<uint64_t>(offsets[i]) + static_cast<uint64_t>(lengths[i]));
        text += fmt::format("{}{}:{}", i ? ", " : "", offsets[i], end);
    }
    return text + "]";
}

bool boxIsEmpty(DimSpan lengths) {
    return std::any_of(lengths.begin(), lengths.end(), [](int64_t l) { return l == 0; });
}

bool boxInside(DimSpan offsets, DimSpan lengths, DimSpan shape) {
    if (offsets.size() != shape.size() || lengths.size() != shape.size()) return false;
    for (size_t i = 0; i < shape.size(); ++i) {
        if (offsets[i] < 0 || lengths[i] < 0 || offsets[i] > shape[i] || lengths[i] > shape[i] - offsets[i])
            return false;
    }
    return true;
}

std::optional<Box> intersect(DimSpan offsetsA, DimSpan lengthsA, DimSpan offsetsB, DimSpan lengthsB) {
    Box box;
    box.offsets.resize(offsetsA.size());
    box.lengths.resize(offsetsA.size());
    for (size_t i = 0; i < offsetsA.size(); ++i) {
        const int64_t begin = std::max(offsetsA[i], offsetsB[i]);
        const int64_t end = std::min(offsetsA[i] + lengthsA[i], offsetsB[i] + lengthsB[i]);
        if (end <= begin) return std::nullopt;
        box.offsets[i] = begin;
        box.lengths[i] = end - begin;
    }
    return box;
}

int64_t elementsBefore(int64_t position, DimSpan shape, DimSpan offsets, DimSpan lengths) {
    // Digits of `position` in the mixed radix of `shape`, most significant first: once a digit is below the
    // box, nothing more of this prefix is in it; above it, the whole slice is; inside, the next digit
    // decides.
    const int64_t total = elementCount(lengths);
    if (total == 0) return 0;
    int64_t shapeSlice = elementCount(shape);
    int64_t boxSlice = total;
    if (position >= shapeSlice) return total;
    int64_t before = 0;
    for (size_t i = 0; i < shape.size(); ++i) {
        shapeSlice /= shape[i];
        boxSlice /= lengths[i];
        const int64_t digit = position / shapeSlice;
        position %= shapeSlice;
        if (digit < offsets[i]) return before;
        if (digit >= offsets[i] + lengths[i]) return before + lengths[i] * boxSlice;
        before += (digit - offsets[i]) * boxSlice;
    }
    return before;
}

int64_t positionOf(int64_t index, DimSpan shape, DimSpan offsets, DimSpan lengths) {
    int64_t position = 0;
    int64_t stride = 1;
    for (size_t i = shape.size(); i-- > 0;) {
        position += (offsets[i] + index % lengths[i]) * stride;
        index /= lengths[i];
        stride *= shape[i];
    }
    return position;
}

}  // namespace shardscope

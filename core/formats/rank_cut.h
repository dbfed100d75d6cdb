// What a rank holds of a tensor that ranks cut along one axis: a part of it, or its share of each of the
// parts that were fused into the tensor (query, key and value; gate and up projection).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "formats/tensor_files.h"
#include "formats/tp_rule.h"
#include "model/region.h"

namespace shardscope {

// A part of a rank's shard along the axis.
struct CutPart {
    int64_t from = 0, length = 0, offset = 0;  // in the shard, and in the whole tensor
};

// A box of the whole tensor, and which elements of a rank's shard it is.
struct CutBox {
    Dims from;                           // where it begins in the shard
    Dims offsets, lengths;               // in the whole tensor
    std::optional<FlatRange> flat = {};  // only these elements of the box
    int64_t first = 0;                   // the first of them, in the row-major order of the shard
    Dims strides = {};                   // of them in that order, where one is not behind the other

    // Where they are in a stored tensor of any shape that has the shard's elements from `start` on.
    StoredPart in(uint32_t file, uint32_t tensor, int64_t start) const;
};

struct RankCut {
    int axis = TpRule::kReplicated;  // the rank holds the whole tensor
    std::vector<CutPart> parts;      // of an axis; none = it holds nothing

    // `parts`: sizes in the whole tensor of what was fused into it; one = nothing was. The rank has the same
    // share of each that [offset, offset + length) is of all.
    static RankCut share(int axis, std::span<const int64_t> parts, int64_t offset, int64_t length);

    // A box for each part. `shape`: of the shard or of the whole tensor, which differ along the axis only.
    std::vector<CutBox> boxes(DimSpan shape) const;
    // Of a range of the shard's row-major order: as few boxes and ranges of them as hold it.
    std::vector<CutBox> boxes(DimSpan shape, FlatRange range) const;
};

}  // namespace shardscope

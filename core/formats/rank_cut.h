// What a rank holds of a tensor that is sharded along one axis. Either one range of the axis, or a share of
// each part of a fused tensor (query, key and value; gate and up projection).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "formats/tensor_files.h"
#include "formats/tp_rule.h"
#include "model/region.h"

namespace shardscope {

// One range of the axis, in elements: from `from` in the rank's shard, from `offset` in the whole tensor.
struct CutPart {
    int64_t from = 0, length = 0, offset = 0;
};

// A box of the whole tensor, and where its elements are in a rank's shard.
struct CutBox {
    Dims from;                           // where it begins in the shard
    Dims offsets, lengths;               // in the whole tensor
    std::optional<FlatRange> flat = {};  // if set: only these elements of the box
    int64_t first = 0;                   // first element, in the row-major order of the shard
    Dims strides = {};                   // in elements of the shard; empty = contiguous

    // The part of a stored tensor of any shape that holds the shard's elements from element `start` on.
    StoredPart in(uint32_t file, uint32_t tensor, int64_t start) const;
};

struct RankCut {
    int axis = TpRule::kReplicated;  // kReplicated = the rank holds the whole tensor
    std::vector<CutPart> parts;      // of the axis, in order; empty = the rank holds nothing

    // `parts`: sizes along `axis` of the parts that were fused; one part = not fused. The rank holds of each
    // part the same share as [offset, offset + length) is of the axis.
    static RankCut share(int axis, std::span<const int64_t> parts, int64_t offset, int64_t length);

    // One box for each part. `shape`: of the shard or of the whole tensor; they differ along the axis only.
    std::vector<CutBox> boxes(DimSpan shape) const;
    // The fewest boxes, or flat ranges of boxes, that hold `range` of the shard's row-major order.
    std::vector<CutBox> boxes(DimSpan shape, FlatRange range) const;
};

// What a catalog says of a tensor.
TensorInfo infoOf(const Catalog& catalog, TensorId t);

// `target` with other chunks, for Format::placing: those that `addChunks` adds of each tensor. The mesh is
// that of the framework's ranks; one of a single rank is left out.
using AddChunks = std::function<Status(TensorId t, const TensorInfo& info, CatalogBuilder& builder)>;
Result<Catalog> withChunks(const Catalog& target, Mesh mesh, const AddChunks& addChunks);

}  // namespace shardscope

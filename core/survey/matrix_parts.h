// What a placement matrix is put together from, as functions of values: which ranks and tensors are alike,
// and in which order they stand.
#pragma once

#include <optional>

#include "survey/placement_matrix.h"

namespace shardscope {

uint64_t mix(uint64_t hash, uint64_t value);
// With the part of its tensor that the chunk holds.
uint64_t mixPlace(uint64_t hash, const ChunkInfo& chunk);

// Ranks that are declared, that hold something, or whose file the metadata names; ascending. Nothing when
// stopped.
std::optional<std::vector<uint32_t>> ranksOfColumns(const Catalog& catalog, const StopToken& stop);
// Each of `count` axes once: those that are asked for, then the others.
std::vector<int> orderAxes(const std::vector<int>& asked, size_t count);

struct RankToPlace {
    uint32_t rank = 0;
    std::vector<uint32_t> coordinates;  // by axis, in the chosen order; columns are sorted by them
    bool fileMissing = false;
    // What it holds, as one number: the sum over its chunks, so that their order does not matter.
    std::pair<uint64_t, uint64_t> held{0, 0};
    void hold(uint64_t hash);
};
// The columns, and the column of each rank. With `fold` ranks that hold the same share one.
std::pair<std::vector<MatrixColumn>, std::vector<uint32_t>> columnsOf(const std::vector<RankToPlace>& ranks,
                                                                      bool fold);

// Tensors that are alike but for the number of their layer.
struct TensorGroup {
    std::vector<TensorId> tensors;
    int64_t first = -1, last = -1;  // least and greatest layer
    uint64_t form = 0;              // of the name around the number; 0 = it has none
};
// In the order of `order`; each tensor alone without `fold`. Nothing when stopped.
std::optional<std::vector<TensorGroup>> groupTensors(const Catalog& catalog, const Facts* facts,
                                                     const std::vector<TensorId>& order, bool fold,
                                                     const StopToken& stop);
// By group, which of `pinned` it has first; kNone for none of them.
std::vector<uint32_t> pinsOf(const std::vector<TensorGroup>& groups, const std::vector<TensorId>& pinned);
// The groups as rows: pinned ones first, and the odd one out of a run of layers right after the run that it
// interrupts.
std::vector<uint32_t> orderRows(const std::vector<TensorGroup>& groups, const std::vector<uint32_t>& pins);

// Down and across: the two dimensions that are cut most often, the later one from left to right; -1 = none.
std::pair<int, int> drawnDimensions(const std::vector<uint32_t>& cuts);
// Adds a box of a tensor to the last cell of `detail`.
void addSlice(RowDetail& detail, DimSpan shape, DimSpan offsets, DimSpan lengths);
// Sets MatrixCell::copyOf. `chunks` are those of all cells, by column; `held` is equal for equal cells.
void markCopies(const Catalog& catalog, TensorId tensor,
                const std::vector<std::pair<uint32_t, ChunkId>>& chunks, const std::vector<uint64_t>& held,
                std::vector<MatrixCell>& cells);

}  // namespace shardscope

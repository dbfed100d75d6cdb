// Whether the chunks of a tensor cover it: exactly what is missing, what is there twice, and what is merely a
// replica.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "model/catalog.h"

namespace shardscope {

struct CoverageResult {
    std::vector<Box>
        gaps;  // disjoint boxes; together exactly the elements that no chunk covers, merged where they can be
    uint64_t gapElements = 0;  // also those of gaps beyond `maxGaps`
    std::vector<std::pair<ChunkId, ChunkId>>
        overlaps;               // different boxes (or flat ranges) that share elements, a < b
    uint64_t overlapCount = 0;  // of such pairs, also those beyond `maxPairs`
    std::vector<std::pair<ChunkId, ChunkId>>
        replicas;  // (first, later chunk with the same box and flat range)
    // False when a hostile arrangement (millions of crossing boxes) used up the work that is allowed. What is
    // listed is true, but there may be more.
    bool complete = true;
    bool whole() const { return complete && gapElements == 0 && overlapCount == 0; }
};

// Chunks that leave their tensor are cut to it; empty ones are ignored. A whole tensor, however it is cut,
// takes time linear in its chunks; a damaged one n log n for usual cuts. Flat ranges are taken as the boxes
// that they are made of.
CoverageResult checkCoverage(const Catalog& catalog, TensorId tensor, size_t maxPairs = 1000,
                             size_t maxGaps = 1'000'000);

// Chunks that together hold each element once when the tensor is whole, in id order. Empty chunks and chunks
// that leave the tensor are left out; of each set of replicas the first whose file is present stays.
std::vector<ChunkId> coveringChunks(const Catalog& catalog, TensorId tensor);

// The at most 2 * rank - 1 disjoint boxes that a range of a box's row-major order is made of. `range` must
// lie inside the box.
std::vector<Box> flatRangeBoxes(DimSpan offsets, DimSpan lengths, FlatRange range);

}  // namespace shardscope

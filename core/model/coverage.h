// Whether the chunks of a tensor cover it: exactly what is missing, what is there twice, and what is merely a replica.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "model/catalog.h"

namespace shardscope {

struct CoverageResult {
    std::vector<Box> gaps;  // disjoint boxes; together exactly the elements that no chunk covers, merged where they can be
    uint64_t gapElements = 0;
    std::vector<std::pair<ChunkId, ChunkId>> overlaps;  // different boxes (or flat ranges) that share elements, a < b
    uint64_t overlapCount = 0;                          // of such pairs, also those beyond `maxPairs`
    std::vector<std::pair<ChunkId, ChunkId>> replicas;  // (first, later chunk with the same box and flat range)
    bool whole() const { return gapElements == 0 && overlapCount == 0; }
};

// Chunks that leave their tensor are cut to it; empty ones are ignored. n log n for one-dimensional cuts and regular grids
// (which need no sweep at all), a sweep over compressed coordinates otherwise. Flat ranges are taken as the boxes that
// they are made of.
CoverageResult checkCoverage(const Catalog& catalog, TensorId tensor, size_t maxPairs = 1000, size_t maxGaps = 1'000'000);

// Chunks that give each element of the tensor once when it is whole: in id order, without empty chunks and replicas.
std::vector<ChunkId> coveringChunks(const Catalog& catalog, TensorId tensor);

}  // namespace shardscope

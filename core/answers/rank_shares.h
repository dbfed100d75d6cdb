// What each rank holds of a checkpoint: `info --ranks`, `ls --rank` and Python. From the catalog alone.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "answers/json.h"
#include "model/catalog.h"
#include "model/mesh.h"

namespace shardscope {

// Bytes are those of elements, a replica counted for each rank that stores it; a tensor with several names
// counts once. Chunks without a rank are rank 0's.
struct RankShare {
    uint64_t tensors = 0, chunks = 0, bytes = 0;
    std::array<uint64_t, 4> bytesOf{};  // by Role; their sum is `bytes`
    std::vector<FileId> files;          // ascending: that the rank has written, or that hold its chunks
};

struct RankShares {
    std::optional<Mesh> mesh;  // of at least as many ranks
    std::vector<RankShare> ranks;
    RankShare all;                             // the sums, with each tensor and each file once
    std::string placeOf(uint32_t rank) const;  // "dp=0 tp=3"; empty without a mesh
};
RankShares rankShares(const Catalog& catalog);
Json rankSharesJson(const Catalog& catalog, const RankShares& shares);  // "ranks" of shardscope.info/1

// Of one tensor. Aliases are named here as any other tensor is.
RankShare shareOf(const Catalog& catalog, TensorId tensor, uint32_t rank);
// Errors: usage, with the ranks that there are.
Status checkRank(const Catalog& catalog, uint32_t rank);

}  // namespace shardscope

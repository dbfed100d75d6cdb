// Finds the mesh of ranks from how tensors are cut, with the sentences that justify it.
#pragma once

#include <optional>
#include <vector>

#include "model/catalog.h"

namespace shardscope {

// How the chunks of one tensor are spread over its dimensions.
struct TensorCut {
    Dims parts;             // distinct pieces along each dimension; {1, 1} = not cut
    bool regular = true;    // the pieces form a full grid
    uint32_t ranks = 0;     // distinct ranks that hold a piece
    uint32_t replicas = 1;  // copies of each piece that are stored (formats that keep replicas)
};
TensorCut tensorCut(const Catalog& catalog, TensorId tensor);

// The mesh that explains most cut tensors, with axes named by what they do: tp cuts a dimension of a weight
// that some tensors of its layer lack, dp or fsdp one that all share, pp gives ranks different tensors. The
// answer is nullopt when nothing is cut and all is on one rank. Never contradicts rankCount().
std::optional<Mesh> inferMesh(const Catalog& catalog);

}  // namespace shardscope

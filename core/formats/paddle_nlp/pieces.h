// Places the entries of one tensor-parallel rank and pipeline stage in a tensor. An entry is a whole shard,
// or a flat range of the padded shard; these ranges follow the order of the sharding ranks.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "formats/paddle_nlp/parameters.h"

namespace shardscope::paddle_nlp {

// How a parameter is distributed over tensor-parallel and sharding ranks.
struct Layout {
    uint32_t tp = 1;
    int axis = -1;  // the sharded dimension; negative = each rank holds the whole
    Dims local;     // shape of a rank's shard
    const std::map<uint32_t, Dims>* locals = nullptr;  // by rank, if the shapes differ
    Dims global;                                       // shape of the whole tensor; set by finish()
    unsigned itemSize = 1;                             // of the parameter's dtype, in bytes
    uint32_t sharding = 1;
    bool copies = false;  // sharding ranks hold replicas, never slices
    int fusedParts = 1;   // fused projections of which each rank holds a share; 1 = not split

    // Computes `global`. Errors: limit if the whole is too large.
    Status finish(const std::string& name);
    Dims shapeOn(uint32_t rank) const;
    Dims offsetsOn(uint32_t rank) const;
    // The boxes of a piece: one for each projection, or the piece itself.
    std::vector<CutBox> boxesOf(const TensorAssembly::Piece& piece) const;
};

// A piece of the whole tensor, before fused projections are split. Its part has no file if that is missing or
// unreadable.
struct PlannedPiece {
    const RankFile* file = nullptr;
    TensorAssembly::Piece piece;
};

struct PieceInput {
    const Parameter& parameter;
    const State& state;
    const Layout& layout;
    RankPlace at;  // but for the sharding rank
    bool weight = false;
    bool whole = false;  // a weight that was consolidated before saving
    const HybridFiles& files;
    const RankFile* lost = nullptr;  // an absent file that may have held a part of the state
};
// What does not fit is noted in `builder`.
Result<std::vector<PlannedPiece>> layPieces(const PieceInput& input, std::vector<StoredShard> held,
                                            CatalogBuilder& builder);

}  // namespace shardscope::paddle_nlp

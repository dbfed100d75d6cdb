// Where the entries of one tensor-parallel rank and pipeline stage are in a tensor: whole, or as slices of
// the flattened and padded parameter, one after the other over the sharding ranks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "formats/paddle_nlp/parameters.h"

namespace shardscope::paddle_nlp {

// How a parameter is spread over tensor-parallel ranks.
struct Layout {
    uint32_t tp = 1;
    int axis = -1;                                     // that is cut; negative = each rank holds the whole
    Dims local;                                        // shape on a rank
    const std::map<uint32_t, Dims>* locals = nullptr;  // where they differ
    Dims global;                                       // of the whole; set by finish()
    unsigned itemSize = 1;                             // of the parameter's dtype, in bytes
    uint32_t sharding = 1;
    bool copies = false;  // what several sharding ranks hold is the same on all, never slices
    int fusedParts = 1;   // projections of which each rank holds its share; 1 = one, or left as it is

    // Errors: limit when the whole is too large.
    Status finish(const std::string& name);
    Dims shapeOn(uint32_t rank) const;
    Dims offsetsOn(uint32_t rank) const;
};

// A chunk to be.
struct PlannedChunk {
    const RankFile* file = nullptr;
    const PaddleArray* array = nullptr;  // null: the file is missing or cannot be read
    uint32_t tp = 0, pp = 0, shard = 0, moe = 0;
    Dims offsets, lengths;
    std::optional<FlatRange> flat;
    uint32_t tensor = 0;              // in the file; `array` is one of its parts
    int64_t first = 0;                // of the stored tensor, for a flat range and for strides
    Dims arrayOffsets, arrayLengths;  // a box in the stored tensor; empty = all of it
    Dims arrayStrides;                // or the chunk's elements from `first` at these strides
    bool cast = false;
    std::vector<StoredPart> padding;  // that must be zeros
};

struct PieceInput {
    const Parameter& parameter;
    const State& state;
    const Layout& layout;
    uint32_t tp = 0, pp = 0, moe = 0;
    bool weight = false;
    bool whole = false;  // a weight that was merged before saving
    const HybridFiles& files;
    const RankFile* lost = nullptr;  // a file that may have held some of it
};
struct PieceResult {
    std::vector<PlannedChunk> planned;
    std::vector<Note> notes;
};
Result<PieceResult> layPieces(const PieceInput& input, std::vector<StoredShard> held);

}  // namespace shardscope::paddle_nlp

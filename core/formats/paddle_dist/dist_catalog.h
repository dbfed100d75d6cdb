// From decoded metadata to a Catalog.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "formats/format.h"
#include "formats/paddle_dist/metadata.h"
#include "formats/paddle_dist/names.h"
#include "formats/tensor_files.h"

namespace shardscope::paddle {

struct DistParts {
    Catalog catalog;
    Generation generation = Generation::v1;
    bool shapesGiven = false;  // by the metadata
    // The shape that a chunk's array has where the metadata claims more than the tensor holds: the chunk is
    // cut.
    std::unordered_map<ChunkId, Dims> claimed;
    // Tensors that the catalog leaves out, for reasons that are noted.
    std::unordered_set<std::string> leftOut;
};

struct DistInput {
    const Source& source;
    TensorFiles& files;  // read as far as they are needed
    uint64_t id = 0;
    const std::map<uint64_t, SaveFiles>& saves;
    Metadata metadata;
    uint64_t metadataSize = 0;
    std::vector<Note> notes;  // about the choice of the save
};

// Errors: damaged, limit, with tensor name.
Result<DistParts> buildDistCatalog(DistInput input);

// A piece of a tensor that the metadata knows, as far as it matters to what else is in the files.
struct KnownPiece {
    Dims lengths;
    bool flat = false;
    std::string file;  // empty when nobody knows
};
// What is known of a tensor; nullopt when the metadata does not have it.
struct KnownTensor {
    Generation generation = Generation::v1;
    bool shapeGiven = false;  // by the metadata, rather than by how far the pieces reach
    bool ignored = false;     // left out for another reason
    Dims shape;
    std::vector<KnownPiece> pieces;
};

// Notes on entries of a data file that the metadata does not know: of another save, or without a row of
// theirs.
using FindKnown = std::function<std::optional<KnownTensor>(const std::string& key)>;
std::vector<Note> unexpectedEntries(TensorFiles& files, uint32_t file, const FindKnown& known);

// Whether an array of dtype `stored` is what a tensor of dtype `wanted` is stored as.
bool storedAs(DType wanted, DType stored);

}  // namespace shardscope::paddle

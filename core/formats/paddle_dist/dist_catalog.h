// Builds the catalog of a Paddle distributed checkpoint from its decoded metadata.
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
    bool shapesGiven = false;  // the metadata states global shapes
    // Shapes by the metadata of chunks that would reach beyond their tensor. The catalog clips such chunks;
    // the stored array has the full shape.
    std::unordered_map<ChunkId, Dims> claimed;
    // Tensors that the catalog leaves out; notes state why.
    std::unordered_set<std::string> leftOut;
};

struct DistInput {
    const Source& source;
    TensorFiles& files;  // files are read only as needed
    uint64_t id = 0;
    const std::map<uint64_t, SaveFiles>& saves;
    Metadata metadata;
    uint64_t metadataSize = 0;
    std::vector<Note> notes;  // on the choice of the save
};

// Errors, with the tensor's name: damaged, limit.
Result<DistParts> buildDistCatalog(DistInput input);

// A chunk in the metadata, for comparison with the entries of data files.
struct KnownPiece {
    Dims lengths;
    bool flat = false;
    std::string file;  // empty = unknown
};
// What the metadata states of a tensor.
struct KnownTensor {
    Generation generation = Generation::v1;
    bool shapeGiven = false;  // the shape is stated, not derived from the chunks
    bool ignored = false;     // the catalog leaves the tensor out for another reason
    std::vector<KnownPiece> pieces;
};

// Returns nullopt for a key that the metadata does not have.
using FindKnown = std::function<std::optional<KnownTensor>(const std::string& key)>;
// Notes on entries of a data file that the metadata does not name, such as entries of another save.
std::vector<Note> unexpectedEntries(TensorFiles& files, uint32_t file, const FindKnown& known);

// Whether Paddle stores a tensor of dtype `wanted` as an array of dtype `stored`.
bool storedAs(DType wanted, DType stored);

}  // namespace shardscope::paddle

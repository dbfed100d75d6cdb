// Puts a catalog together from what is in many files: tensors gain pieces in any order.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "formats/catalog_opener.h"
#include "formats/tensor_files.h"

namespace shardscope::olmo {

class Assembly : private CatalogOpener {
  public:
    Assembly(const Source& source, const OpenOptions& options, std::string variant);

    TensorFiles& files() { return *files_; }
    CatalogBuilder& builder() { return builder_; }
    using CatalogOpener::note;

    // A file of the checkpoint; kNone when it is missing, or there but damaged; both are noted.
    Result<uint32_t> addFile(const std::string& name, uint32_t rank);
    // A file that holds no tensors. Its text where it is short, else nothing.
    std::string addText(const std::string& name);

    struct Piece {
        uint32_t rank = 0;
        StoredPart part;
        Dims offsets, lengths;  // both empty = the whole tensor
        std::optional<FlatRange> flat;
    };
    struct Tensor {
        TensorInfo info;
        std::vector<Piece> pieces;
    };
    // Adds a piece to the tensor of this path. Pieces that disagree about shape or dtype are noted and
    // dropped.
    void addPiece(const Path& path, DType dtype, const Dims& shape, Role role, Piece piece);
    // A stored tensor as a whole, under `prefix`; with its alias in the same file.
    void addWhole(uint32_t file, uint32_t tensor, Path path, Role role, uint32_t rank);
    void addObject(uint32_t file, Path path, const Value& value, uint32_t rank, uint64_t offset = 0,
                   uint64_t length = 0);
    // The values of a file's other entries under `prefix`.
    void addObjects(uint32_t file, const Path& prefix, uint32_t rank);

    Result<std::unique_ptr<Reader>> finish(uint32_t world);

  private:
    const Source& source_;
    const OpenOptions& options_;
    std::unique_ptr<TensorFiles> files_;
    std::vector<Tensor> tensors_;
    std::unordered_map<std::string, size_t> byPath_;  // encoded
    std::unordered_map<uint64_t, size_t> stored_;     // file and tensor -> tensors_
    std::set<std::string> named_;
};

// "world_size: 4" in a YAML text of plain fields; nullopt when absent.
std::optional<int64_t> yamlInteger(std::string_view text, std::string_view key);

// Without the infix that FSDP puts into names.
std::string withoutWrapper(std::string_view name);

}  // namespace shardscope::olmo

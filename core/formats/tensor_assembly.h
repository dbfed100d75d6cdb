// Puts a catalog together from the files of many ranks: tensors gain pieces in any order.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "formats/catalog_opener.h"
#include "formats/tensor_files.h"

namespace shardscope {

class TensorAssembly : private CatalogOpener {
  public:
    TensorAssembly(const Source& source, const OpenOptions& options, std::string format, std::string variant,
                   std::string writer);

    TensorFiles& files() { return *files_; }
    CatalogBuilder& builder() { return builder_; }
    using CatalogOpener::note;

    // A file of the checkpoint; kNone when it is missing, or there but damaged; both are noted.
    Result<uint32_t> addFile(const std::string& name, uint32_t rank);
    // Several (name, rank), read side by side.
    Result<std::vector<uint32_t>> addFiles(std::span<const std::pair<std::string, uint32_t>> files);
    // A file that should be there. Below an error the tensors do not depend on it.
    void addMissing(const std::string& name, uint32_t rank, Severity severity, std::string message,
                    Note::Lacks lacks = Note::Lacks::nothing);
    // A file that is there and is not used, for a reason that has been noted.
    void addUnused(const DirectoryEntry& entry, uint32_t rank);
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
    // Adds a piece to the tensor of this path; a tensor that is new here becomes an alias where the file says
    // so. Pieces that disagree about shape or dtype are noted and dropped.
    void addPiece(const Path& path, DType dtype, const Dims& shape, Role role, Piece piece);
    // Another name of a tensor that is there, once all its pieces are; nothing where it is not.
    void addAlias(const Path& path, const Path& of);
    // A tensor that counts even where no piece of it is found.
    void addTensor(const Path& path, DType dtype, const Dims& shape, Role role);
    // A stored tensor as a whole.
    void addWhole(uint32_t file, uint32_t tensor, Path path, Role role, uint32_t rank);
    void addObject(uint32_t file, Path path, const Value& value, uint32_t rank, uint64_t offset = 0,
                   uint64_t length = 0);
    // The values of a file's other entries under `prefix`.
    void addObjects(uint32_t file, const Path& prefix, uint32_t rank);

    // Whether the pieces hold every element of every tensor, if those that are not equal do not overlap.
    bool complete() const;
    // `world`: ranks in all. `mesh`: as the files state it; without one the ranks are one axis, "fsdp".
    // `findNotes`: what Reader::fileNotes() answers; it may keep a pointer to files().
    Result<std::unique_ptr<Reader>> finish(uint32_t world, std::optional<Mesh> mesh = std::nullopt,
                                           FindNotes findNotes = {});

  private:
    // Index of the tensor of this path, which is made when it is new.
    size_t tensorAt(const Path& path, DType dtype, const Dims& shape, Role role);

    const Source& source_;
    const OpenOptions& options_;
    std::unique_ptr<TensorFiles> files_;
    std::vector<Tensor> tensors_;
    std::unordered_map<std::string, size_t> byPath_;  // encoded
    std::unordered_map<uint64_t, size_t> stored_;     // file and tensor -> tensors_
    std::set<std::string> named_;
};

}  // namespace shardscope

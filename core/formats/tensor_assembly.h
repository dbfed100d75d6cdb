// Puts a catalog together from the files of many ranks: tensors gain pieces in any order. Pieces are held in
// columns, about 80 bytes each.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "encoding/strict_json.h"
#include "formats/catalog_opener.h"
#include "formats/rank_cut.h"
#include "formats/roles.h"
#include "formats/tensor_files.h"

namespace shardscope {

class TensorAssembly : private CatalogOpener {
  public:
    TensorAssembly(const Source& source, const OpenOptions& options, std::string format, std::string variant,
                   std::string writer, TensorFiles::Writer kind = TensorFiles::Writer::torch);

    TensorFiles& files() { return *files_; }
    CatalogBuilder& builder() { return builder_; }
    using CatalogOpener::note;
    // Notes that are added at most, errors aside.
    void limitNotes(size_t most) { most_ = most; }

    // A file of the checkpoint; kNone when it is missing, or there but damaged; both are noted, with what a
    // conversion lacks. Errors: those of reading where the file is of no rank.
    Result<uint32_t> addFile(const std::string& name, uint32_t rank,
                             Note::Lacks lacks = Note::Lacks::nothing);
    // Several (name, rank), read side by side. One that is known already is not read again.
    Result<std::vector<uint32_t>> addFiles(std::span<const std::pair<std::string, uint32_t>> files,
                                           Note::Lacks lacks = Note::Lacks::nothing);
    // A file that is not read for tensors, in any state.
    FileId addOther(FileInfo info);
    // Of a file that was added; kNone else.
    struct Known {
        FileId id = kNone;
        uint32_t index = kNone;  // kNone = it is not there, damaged, or holds no tensors
    };
    Known known(const std::string& name) const;
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
        bool stated = false;  // metadata says that it is there: its place is taken, whatever the file holds
    };
    // Adds a piece to the tensor of this path; a tensor that is new here becomes an alias where the file says
    // so. Pieces that disagree about shape or dtype are noted and dropped.
    void addPiece(const Path& path, DType dtype, const Dims& shape, Role role, Piece piece);
    // A piece of which only this is known, and the file that should have it (`piece.part` is of no file): the
    // dtype is that of the other pieces.
    void addLost(const Path& path, const Dims& shape, Role role, FileId file, Piece piece);
    // Boxes of a rank's shard; `shard` is the stored tensor that has it, in the shape of the shard, or with
    // the shard's elements from element `start` on.
    void addBoxes(const Path& path, DType dtype, const Dims& shape, Role role, const Piece& shard,
                  std::vector<CutBox> boxes, std::optional<int64_t> start = std::nullopt);
    // Another name of a tensor that is there, once all its pieces are; nothing where it is not.
    void addAlias(const Path& path, const Path& of);
    // A tensor that counts even where no piece of it is found.
    void addTensor(const Path& path, DType dtype, const Dims& shape, Role role);
    // Finds the roles of all tensors that are there, where they follow from the names of all together.
    void setRoles(const RoleFinder& roles);
    // A stored tensor as a whole.
    void addWhole(uint32_t file, uint32_t tensor, Path path, Role role, uint32_t rank);
    void addObject(uint32_t file, Path path, const Value& value, uint32_t rank, uint64_t offset = 0,
                   uint64_t length = 0);
    // The values of a file's other entries under `prefix`.
    void addObjects(uint32_t file, const Path& prefix, uint32_t rank);

    // mayDrift: vectors of ranks that differ, such as norms that went apart, are a warning.
    enum class Vectors : uint8_t { mustAgree, mayDrift };
    // Notes tensors of which pieces for the same place hold different values, as far as checksums and some
    // bytes tell: what ranks hold under one name is not one tensor then (an error; of buffers nothing). Call
    // after all pieces are there, with roles; `lacks` is what a conversion of weights lacks.
    void noteDifferentCopies(Note::Lacks lacks, Vectors vectors);
    // Whether the pieces hold every element of every tensor, if those that are not equal do not overlap.
    bool complete() const;
    // `world`: ranks in all. `mesh`: as the files state it, without axes where they have none; nullopt: the
    // ranks are one axis, "fsdp".
    // `findNotes`: what Reader::fileNotes() answers; it may keep a pointer to files().
    Result<std::unique_ptr<Reader>> finish(uint32_t world, std::optional<Mesh> mesh = std::nullopt,
                                           FindNotes findNotes = {});

  private:
    struct Tensor {
        Dims shape;
        DType dtype = DType::float32;
        bool known = false;  // of the dtype
        Role role = Role::parameter;
        TensorId aliasOf = kNone;
        uint32_t pieces = 0;
        uint32_t piecesOf = kNone;  // another tensor, whose pieces are those of this one
    };
    static constexpr uint64_t kWhole = UINT64_MAX;
    static constexpr FlatRange kNoRange{INT64_MIN, INT64_MIN};
    struct PieceRow {
        uint32_t tensor = 0;
        uint32_t rank = 0;
        uint64_t box = kWhole;  // where its offsets, then its lengths, stand in boxes_
        FlatRange flat = kNoRange;
    };
    // The pieces of tensor t are rows order[first[t]] up to order[first[t + 1]], as they were added.
    struct Grouped {
        std::vector<uint32_t> order;
        std::vector<size_t> first;
        std::span<const uint32_t> of(size_t tensor) const {
            return std::span(order).subspan(first[tensor], first[tensor + 1] - first[tensor]);
        }
    };
    Grouped group() const;
    DimSpan offsets(size_t row) const { return boxAt(row, 0); }  // empty for the whole tensor
    DimSpan lengths(size_t row) const { return boxAt(row, 1); }
    DimSpan boxAt(size_t row, size_t half) const;
    DimSpan boxOf(size_t row) const;  // offsets, then lengths
    bool samePlace(size_t row, size_t other) const;
    bool differ(size_t row, size_t other, size_t& budget) const;

    // Index of the tensor of this path, which is made when it is new.
    size_t tensorAt(const Path& path, std::optional<DType> dtype, const Dims& shape, Role role);
    bool fits(size_t index, std::optional<DType> dtype, const Dims& shape, const Piece& piece,
              const std::string& file);
    void addRow(size_t index, Piece piece);
    Result<FileId> addListed(const std::string& name, uint32_t rank, Note::Lacks lacks);
    TensorInfo infoOf(size_t tensor) const;
    uint32_t& firstOf(const StoredPart& part);
    void addUnknown(const TensorInfo& info, std::span<const uint32_t> rows);
    Status addChunks(const TensorInfo& info, std::span<const uint32_t> rows, StoredParts& parts);
    Result<StoredParts> addTensors();

    const Source& source_;
    const OpenOptions& options_;
    std::unique_ptr<TensorFiles> files_;
    std::vector<Tensor> tensors_;
    std::vector<PieceRow> rows_;
    std::vector<int64_t> boxes_;
    StoredParts parts_;                          // one for each row
    safetensors::NameSet paths_;                 // of tensors_, encoded
    std::vector<std::vector<uint32_t>> stored_;  // by file and tensor: the first of tensors_ that has it
    std::map<std::string, Known> known_;
};

}  // namespace shardscope

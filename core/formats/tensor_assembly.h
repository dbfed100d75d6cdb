// Builds a catalog from the files of many ranks. Tensors gain pieces, which become their chunks, in any
// order. A piece takes about 80 bytes, in columns.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "encoding/strict_json.h"
#include "formats/catalog_opener.h"
#include "formats/rank_cut.h"
#include "formats/tensor_files.h"
#include "model/roles.h"

namespace shardscope {

class TensorAssembly : private CatalogOpener {
  public:
    TensorAssembly(const Source& source, const OpenOptions& options, std::string format, std::string variant,
                   std::string writer, TensorFiles::Writer kind = TensorFiles::Writer::torch);

    TensorFiles& files() { return *files_; }
    CatalogBuilder& builder() { return builder_; }
    using CatalogOpener::note;
    using CatalogOpener::wrong;
    // Limits the number of notes; errors are not limited.
    void limitNotes(size_t most) { most_ = most; }

    // Adds and reads a file. Returns its index in files(); kNone, with a note, if the file is missing or
    // damaged. `lacks`: what a conversion lacks without the file. Errors: those of stat(), limit, cancelled;
    // those of reading only if `rank` is kNone.
    Result<uint32_t> addFile(const std::string& name, uint32_t rank,
                             Note::Lacks lacks = Note::Lacks::nothing);
    // As addFile() for several (name, rank), read in parallel. Known files are not read again.
    Result<std::vector<uint32_t>> addFiles(std::span<const std::pair<std::string, uint32_t>> files,
                                           Note::Lacks lacks = Note::Lacks::nothing);
    // As addFiles() for structs with an `index`, which is set. `nameOf` gives (name, rank) of one.
    template <class Files, class NameOf>
    Status addEach(Files& files, NameOf&& nameOf, Note::Lacks lacks = Note::Lacks::nothing) {
        std::vector<std::pair<std::string, uint32_t>> names;
        for (auto& file : files)
            names.push_back(nameOf(file));
        SHARDSCOPE_ASSIGN(const std::vector<uint32_t> indices, addFiles(names, lacks));
        size_t at = 0;
        for (auto& file : files)
            file.index = indices[at++];
        return {};
    }
    // Adds a file, in any state, without reading tensors.
    FileId addOther(FileInfo info);
    // What is known of a file; kNone if it was not added.
    struct Known {
        FileId id = kNone;
        uint32_t index = kNone;  // in files(); kNone = missing, damaged, or without tensors
    };
    Known known(const std::string& name) const;
    // As CatalogOpener::addMissing().
    void addMissing(const std::string& name, uint32_t rank, Severity severity, std::string message,
                    Note::Lacks lacks = Note::Lacks::nothing);
    // As addMissing() for the files that all ranks should have written: of very many the first thousand are
    // listed, and their number is noted.
    void addMissingRank(const std::string& name, uint32_t rank, Severity severity, std::string message,
                        Note::Lacks lacks = Note::Lacks::nothing);
    // Adds a present file that is not used. The caller notes why.
    void addUnused(const DirectoryEntry& entry, uint32_t rank);
    // Adds a file without tensors. Returns its text if it is short, else "".
    std::string addText(const std::string& name);

    struct Piece {
        uint32_t rank = 0;
        StoredPart part;
        Dims offsets, lengths;  // both empty = the whole tensor
        std::optional<FlatRange> flat;
        bool stated = false;  // by the metadata: covers its region whatever the file holds

        // Elements of a stored tensor from `first` on, which are a range of the whole tensor.
        static Piece range(uint32_t rank, uint32_t file, uint32_t tensor, int64_t first, FlatRange range) {
            return {rank, StoredPart::range(file, tensor, first, range.stop - range.start), {}, {}, range};
        }
    };
    // Adds a piece to the tensor of this path. A new tensor becomes an alias if its file says so. A piece
    // with another shape or dtype than the tensor is dropped with a note.
    void addPiece(const Path& path, DType dtype, const Dims& shape, Role role, Piece piece);
    // Adds a piece that is missing from its file. `piece.part` is ignored; the dtype comes from the tensor's
    // other pieces.
    void addLost(const Path& path, const Dims& shape, Role role, FileId file, Piece piece);
    // Adds the boxes of a rank's shard. `shard.part` is the stored tensor that holds the shard: in the
    // shard's shape, or, with `start`, flat from that element on. Its padding is that of the first box. With
    // file kNone the boxes are missing from the file whose FileId is `shard.part.tensor`: as addLost().
    void addBoxes(const Path& path, DType dtype, const Dims& shape, Role role, const Piece& shard,
                  std::vector<CutBox> boxes, std::optional<int64_t> start = std::nullopt);
    // Adds an alias of tensor `of`. Call after all pieces of `of`; does nothing if `of` does not exist.
    void addAlias(const Path& path, const Path& of);
    // Adds a tensor that stays in the catalog even without pieces.
    void addTensor(const Path& path, DType dtype, const Dims& shape, Role role);
    // Sets the roles of all tensors added so far from their names.
    void setRoles(const RoleFinder& roles);
    // Adds a stored tensor as one whole tensor.
    void addWhole(uint32_t file, uint32_t tensor, Path path, Role role, uint32_t rank);
    void addObject(uint32_t file, Path path, const Value& value, uint32_t rank, uint64_t offset = 0,
                   uint64_t length = 0);
    // Adds the objects of a file under `prefix`.
    void addObjects(uint32_t file, const Path& prefix, uint32_t rank);

    // mayDrift: one-dimensional tensors that differ between ranks, such as norms, are a warning only.
    enum class Vectors : uint8_t { mustAgree, mayDrift };
    // Notes tensors whose replicas hold different values, by checksums and samples of bytes. Such a tensor is
    // an error; buffers are skipped. Call after all pieces and roles are set. `lacks`: what a conversion of
    // these weights lacks.
    void noteDifferentCopies(Note::Lacks lacks, Vectors vectors);
    // Whether the pieces hold every element of every tensor. Assumes that distinct boxes and ranges do not
    // overlap.
    bool complete() const;
    // Builds the reader. `world`: number of ranks. `mesh`: as the files state it, without axes if they state
    // none; nullopt: one axis, "fsdp". `findNotes` implements Reader::fileNotes(); it may keep a pointer to
    // files().
    Result<std::unique_ptr<Reader>> finish(uint32_t world, std::optional<Mesh> mesh = std::nullopt,
                                           FindNotes findNotes = {});

  private:
    struct Tensor {
        Dims shape;
        DType dtype = DType::float32;
        bool known = false;  // whether `dtype` is known
        Role role = Role::parameter;
        TensorId aliasOf = kNone;
        uint32_t pieces = 0;
        uint32_t piecesOf = kNone;  // the tensor whose pieces this one shares
    };
    static constexpr uint64_t kWhole = UINT64_MAX;
    static constexpr FlatRange kNoRange{INT64_MIN, INT64_MIN};
    struct PieceRow {
        uint32_t tensor = 0;
        uint32_t rank = 0;
        uint64_t box = kWhole;  // index in boxes_ of the offsets, followed by the lengths
        FlatRange flat = kNoRange;
    };
    // The pieces of tensor t are rows order[first[t]] to order[first[t + 1]] (exclusive), in the order added.
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

    // Index of the tensor of this path; creates the tensor if it is new.
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
    std::vector<std::vector<uint32_t>> stored_;  // by file and stored tensor: first index in tensors_
    std::map<std::string, Known> known_;
    size_t missingRanks_ = 0;
    Note::Lacks lacks_ = Note::Lacks::nothing;  // without the missing files that are not listed
};

}  // namespace shardscope

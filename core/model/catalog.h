// What a checkpoint holds, as its metadata says: tensors, the chunks they are stored in, objects, files, the
// mesh of ranks and notes on oddities. Immutable once built and shared by everything. Columns, not objects: a
// million two-dimensional chunks take some 60 MB.
//
// The same type describes a destination that does not exist yet; its chunks then have no file. A conversion
// is a Catalog that was read, a Catalog that is wanted, and the bytes between them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/dtype.h"
#include "model/mesh.h"
#include "model/path.h"
#include "model/region.h"
#include "model/value.h"

namespace shardscope {

using TensorId = uint32_t;
using ChunkId = uint32_t;
using FileId = uint32_t;
using ObjectId = uint32_t;
constexpr uint32_t kNone = UINT32_MAX;  // no tensor / chunk / file / rank / object

enum class Role : uint8_t { parameter, buffer, optimizer, other };
std::string_view roleName(Role role);
// Whether sharded training keeps this tensor whole on every rank: buffers, counters, scalars.
bool keptWhole(std::string_view name, DType dtype, DimSpan shape, Role role);

// Tensors that are not one dense array (sparse, quantized, nested, DTensor, ...). Their inner parts are
// ordinary tensors named "<name>#<part>"; this says what they make up.
struct SpecialTensor {
    std::string name;
    Path path;
    std::string kind;  // "sparse_coo", "sparse_csr", "quantized", "nested", "dtensor", "sharded_tensor",
                       // "meta", "subclass"
    std::string dtype;
    Dims shape;
    std::string detail;  // further attributes as JSON object text, e.g. {"scale":0.1}; may be empty
};

struct TensorInfo {
    std::string name;
    Path path;
    DType dtype = DType::float32;
    Dims shape;
    Role role = Role::parameter;
    // Names of one tensor (tied weights: same storage, offset, strides, shape) carry the id of the first of
    // them.
    TensorId aliasOf = kNone;
    uint32_t special = kNone;  // index into specials(), for an inner part
};

// One stored part of a tensor. `offset` and `length` are the stored entry as the metadata states it. It is
// the raw elements themselves (safetensors), or a wrapped form of them (a zip in a .distcp). Reader::locate()
// finds the elements in it.
struct ChunkInfo {
    ChunkId id = kNone;
    TensorId tensor = kNone;
    uint32_t rank = kNone;  // that wrote or owns it
    FileId file = kNone;
    uint64_t offset = 0;
    uint64_t length = 0;
    DimSpan offsets;  // the box, in the global tensor
    DimSpan lengths;
    std::optional<FlatRange> flat;  // only this range of the box's row-major order
    int64_t elements() const { return flat ? flat->stop - flat->start : elementCount(lengths); }
};

struct FileInfo {
    // unreadable: it is there, but what it says of itself cannot be read, so what it holds is not known.
    enum class State : uint8_t { present, missing, wrongKind, unreadable };
    std::string path;  // relative to the checkpoint's directory
    uint64_t size = 0;
    State state = State::present;
    bool metadata = false;   // holds metadata only (.metadata, index files)
    uint32_t rank = kNone;   // that wrote it, where the name says so
    bool referenced = true;  // named by the metadata
};

struct ObjectInfo {
    std::string name;
    Path path;
    uint32_t rank = kNone;
    FileId file = kNone;
    uint64_t offset = 0;
    uint64_t length = 0;
    Value value;  // empty until Reader::objectValue() reads it, where that needs a read of its own
};

enum class Severity : uint8_t { info, warning, error };
std::string_view severityName(Severity severity);

// An oddity found while reading metadata. `rule` is a rule id of `validate`.
struct Note {
    std::string rule;
    Severity severity = Severity::info;
    std::string message;
    std::string file;
    std::string tensor;
    std::optional<uint64_t> offset;
    // What a file states as the bytes of all tensors, where they have another number.
    std::optional<uint64_t> claimedBytes;
    // What the catalog may lack because of the oddity: an unreadable file may have held tensors that nothing
    // else names. What is lacking is not converted as if it had never been there.
    enum class Lacks : uint8_t { nothing, optimizerState, anything };
    Lacks lacks = Lacks::nothing;
};

class CatalogBuilder;

class Catalog {
  public:
    // --- identity
    const std::string& format() const { return format_; }    // "dcp"
    const std::string& variant() const { return variant_; }  // of the format, e.g. "sharded"
    const std::string& writer() const { return writer_; }    // "torch 2.8 or later", as far as the bytes tell

    // --- tensors
    size_t tensorCount() const { return dtypes_.size(); }
    std::string_view name(TensorId t) const;
    Path path(TensorId t) const;
    DType dtype(TensorId t) const { return dtypes_[t]; }
    DimSpan shape(TensorId t) const;
    Role role(TensorId t) const { return roles_[t]; }
    TensorId aliasOf(TensorId t) const { return aliasOf_.empty() ? kNone : aliasOf_[t]; }
    uint32_t special(TensorId t) const { return special_.empty() ? kNone : special_[t]; }
    int64_t elements(TensorId t) const { return elementCount(shape(t)); }
    uint64_t bytes(TensorId t) const;            // of the whole tensor
    TensorId find(std::string_view name) const;  // kNone when absent
    const std::vector<SpecialTensor>& specials() const { return specials_; }

    // --- chunks; those of one tensor are neighbors
    size_t chunkCount() const { return files_.size(); }
    ChunkId firstChunk(TensorId t) const { return firstChunk_[t]; }
    ChunkId endChunk(TensorId t) const { return firstChunk_[t + 1]; }
    ChunkInfo chunk(ChunkId c) const;              // finds the tensor by binary search
    ChunkInfo chunk(TensorId t, ChunkId c) const;  // when the tensor is known
    TensorId tensorOf(ChunkId c) const;
    // Whether two tensors have the same shape and the same boxes on the same ranks, in the same order; and a
    // hash of that.
    bool sameCut(TensorId a, TensorId b) const;
    uint64_t cutHash(TensorId t) const;

    // --- files, objects, mesh, notes
    const std::vector<FileInfo>& files() const { return fileInfos_; }
    const std::vector<ObjectInfo>& objects() const { return objects_; }
    const std::optional<Mesh>& mesh() const { return mesh_; }
    const std::vector<Note>& notes() const { return notes_; }

    // --- totals
    uint32_t rankCount() const { return rankCount_; }    // world size as declared, or highest rank seen + 1
    uint64_t totalBytes() const { return totalBytes_; }  // of all tensors, aliases counted once
    // Elements of the tensors with a role, aliases counted once.
    uint64_t elementsOf(Role role) const { return elementsOf_[static_cast<size_t>(role)]; }
    uint64_t totalElements() const;
    uint64_t memoryBytes() const;  // held by this catalog

  private:
    friend class CatalogBuilder;
    template <class Visit>
    bool cutColumns(TensorId t, Visit&& visit) const;
    std::string format_, variant_, writer_;
    // Tensor columns. names_ and paths_ are blobs; an empty path stands for a single key equal to the name.
    std::string names_, paths_;
    std::vector<uint64_t> nameEnd_, pathEnd_;
    std::vector<DType> dtypes_;
    std::vector<Role> roles_;
    std::vector<TensorId> aliasOf_;
    std::vector<uint32_t> special_;
    std::vector<int64_t> shapes_;
    std::vector<uint64_t> shapeEnd_;
    std::vector<ChunkId> firstChunk_;
    std::vector<uint64_t> firstDim_;  // where the tensor's first chunk stands in dims_
    std::vector<TensorId> byName_;    // tensor ids sorted by name
    // Chunk columns. dims_ holds offsets then lengths of each chunk.
    std::vector<int64_t> dims_;
    std::vector<uint32_t> ranks_;
    std::vector<FileId> files_;
    std::vector<uint64_t> offsets_, lengths_;
    std::vector<FlatRange> flats_;  // empty, or one for each chunk; start < 0 = a plain box

    std::vector<SpecialTensor> specials_;
    std::vector<FileInfo> fileInfos_;
    std::vector<ObjectInfo> objects_;
    std::optional<Mesh> mesh_;
    std::vector<Note> notes_;
    uint32_t rankCount_ = 0;
    uint64_t totalBytes_ = 0;
    std::array<uint64_t, 4> elementsOf_{};  // by Role
};

// Fills a Catalog. Chunks are added to the tensor that was added last. Metadata is checked here once for all
// formats: rank <= kMaxRank, dimensions in [0, kMaxDim], products that fit. Boxes that leave their tensor are
// kept and noted (coverage.bounds), so that `validate` can show them. The executor never gets them.
class CatalogBuilder {
  public:
    CatalogBuilder(std::string format, std::string variant, std::string writer);
    // Continues an existing catalog; its ids stay as they are.
    explicit CatalogBuilder(Catalog catalog);

    // --- files
    FileId addFile(FileInfo file);
    size_t fileCount() const { return catalog_.fileInfos_.size(); }
    FileInfo& file(FileId id) { return catalog_.fileInfos_[id]; }

    // --- tensors. Errors: damaged or limit, with the tensor's name.
    Status addTensor(const TensorInfo& info);
    struct Chunk {
        uint32_t rank = kNone;
        FileId file = kNone;
        uint64_t offset = 0;
        uint64_t length = 0;
        DimSpan offsets;
        DimSpan lengths;
        std::optional<FlatRange> flat;
    };
    Status addChunk(const Chunk& chunk);
    // The chunk stays, with none of its elements.
    void emptyChunk(ChunkId chunk);
    // The whole tensor as one chunk.
    Status addWhole(uint32_t rank, FileId file, uint64_t offset, uint64_t length);

    // For a reader that holds the boxes of all chunks in one column already: `count` chunks of the tensor
    // that was added last, none with a flat range. Their boxes (offsets, lengths, offsets, lengths, ...)
    // stand at `firstDim` of a column that takeDims() hands over before finish(). Where they are stored is
    // for the caller to fill in, in columns(); until then they have no file. Not to be mixed with addChunk().
    // Errors: as addChunk.
    Status addBoxes(DimSpan column, uint64_t firstDim, uint32_t count);
    void takeDims(std::vector<int64_t> column) { catalog_.dims_ = std::move(column); }
    struct Columns {
        std::span<uint32_t> ranks;
        std::span<FileId> files;
        std::span<uint64_t> offsets, lengths;
    };
    Columns columns();  // valid until the next chunk is added
    ChunkId firstChunk(TensorId t) const { return catalog_.firstChunk_[t]; }

    uint32_t addSpecial(SpecialTensor special);
    void addObject(ObjectInfo object);
    void addNote(Note note);
    void setMesh(Mesh mesh) { catalog_.mesh_ = std::move(mesh); }
    void setRankCount(uint32_t count) { catalog_.rankCount_ = count; }
    void setVariant(std::string variant) { catalog_.variant_ = std::move(variant); }
    void setWriter(std::string writer) { catalog_.writer_ = std::move(writer); }
    void reserve(size_t tensors, size_t chunks, size_t dims);
    size_t tensorCount() const { return catalog_.tensorCount(); }
    size_t chunkCount() const { return catalog_.chunkCount(); }
    size_t objectCount() const { return catalog_.objects_.size(); }
    // Appends everything that another catalog holds. Names get `prefix`, paths of files `directory`; tensors
    // that are not optimizer state get `role`, if it is given. The first mesh stays. Errors: as addTensor().
    Status addAll(const Catalog& more, std::string_view prefix, std::string_view directory,
                  std::optional<Role> role = std::nullopt);

    // A name that occurs twice is renamed "<name>~2" and noted (meta.duplicate).
    Catalog finish() &&;

  private:
    void noteOutside(TensorId t) {
        if (outside_.empty() || outside_.back() != t) outside_.push_back(t);
    }

    Catalog catalog_;
    std::vector<TensorId> outside_;  // tensors with boxes that leave them, in order
};

}  // namespace shardscope

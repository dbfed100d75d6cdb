// Checkpoints made of tensor files (torch.save, safetensors, paddle.save): the contents of each file, and one
// reader for all of them.
//
// Such a format only needs a probe and a catalog:
//
//     auto files = std::make_unique<TensorFiles>(source, options);
//     SHARDSCOPE_ASSIGN(const uint32_t file, files->add("rank0.pt", builder.addFile(...)));
//     for (each tensor t of (*files)[file]) {
//         builder.addTensor(...);
//         builder.addChunk(...);  // its rank, and its box or flat range in the global tensor
//         parts.add(StoredPart::range(file, t, first, count));  // its place in the stored one
//     }
//     return makePartReader(source, std::move(builder).finish(), std::move(files), std::move(parts));
//
// A chunk is a region of the global tensor (CatalogBuilder::Chunk) and a region of a stored tensor
// (StoredPart). Either may be a box or a flat range: both list the same elements in the same row-major order.
// A stored box that is not contiguous must have the same lengths in the global tensor.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "encoding/dtensor.h"
#include "encoding/paddle_file.h"
#include "encoding/torch_walk.h"
#include "encoding/zip.h"
#include "formats/format.h"
#include "model/value.h"
#include "storage/materialized.h"
#include "storage/open_files.h"

namespace shardscope {

struct StoredTensor {
    std::string name;
    Path path;
    DType dtype = DType::float32;  // as in the file; Paddle stores bfloat16 as uint16
    Dims shape;
    uint32_t sameAs = kNone;   // an earlier tensor with the same storage, offset, shape and strides
    uint32_t special = kNone;  // index into TensorFile::specials
    Dims shardOffsets;         // of a ShardedTensor's shard
    bool buffer = false;       // of a module, not a parameter
    uint64_t offset = 0;       // byte in the file, as in the catalog
    uint64_t bytes = 0;
    // paddle.save only: the array that holds the tensor, or the parts of a split parameter in row-major
    // order.
    std::vector<PaddleArray> parts;
    std::string parameter;       // static name; may be empty
    bool loadedAsTensor = true;  // false: paddle.load returns a numpy array
};

struct StoredObject {
    std::string name;
    Path path;
    Value value;
};

// The contents of one file. Keeps no file handle open.
struct TensorFile {
    enum class Kind : uint8_t { torch, safetensors, paddle };
    std::string name;
    FileId id = kNone;
    uint64_t size = 0;
    Kind kind = Kind::torch;
    std::string variant, writer;  // of the encoding, as far as the bytes show
    std::vector<StoredTensor> tensors;
    std::vector<StoredObject> objects;  // of torch.save and paddle.save files
    std::vector<SpecialTensor> specials;
    std::vector<torch_save::TensorPlacement> placements;     // of `specials`; torch.save only
    std::vector<std::pair<std::string, std::string>> texts;  // __metadata__ of a safetensors header
    torch_save::WrittenBy writtenBy;                         // torch.save only
    std::vector<Note> notes;
    std::vector<Note>
        recordNotes;  // on the records of a zip archive, for a checkpoint that is this file alone

    uint32_t find(std::string_view name) const;  // the first tensor of this name; kNone when absent
    // Indices of `tensors`, sorted by name.
    std::vector<uint32_t> byName;

    // Where a tensor's elements are; not for paddle.save.
    struct ElementExtent {
        const ZipEntry* entry = nullptr;  // of `zip`
        uint64_t first = 0;               // byte in the zip record; in the file if `entry` is null
        uint64_t length = 0;              // bytes to the end of the last element
        Dims strides;                     // empty = row-major
        bool conjugate = false, negate = false;
    };
    std::vector<ElementExtent> places;
    std::unique_ptr<ZipArchive> zip;  // without its file
    bool bigEndian = false;
};

// The part of a stored tensor that one chunk is: the whole, a box, or a flat range.
struct StoredPart {
    uint32_t file = kNone;                         // index into TensorFiles; kNone = no file holds it
    uint32_t tensor = 0;                           // in that file
    Dims offsets, lengths;                         // the box; both empty = everything
    int64_t firstElement = 0;                      // of a flat range or of strided elements
    int64_t elements = -1;                         // -1 = no flat range
    std::optional<DType> storedAs = std::nullopt;  // as Extent::storedAs
    std::optional<DType> bits = std::nullopt;      // the true dtype of the bits, if the file states another
    Dims strides = {};  // instead of offsets: `lengths` elements at these strides of the row-major tensor
    std::vector<StoredPart> zeros = {};  // padding after the chunk: flat ranges that must be zero

    static StoredPart whole(uint32_t file, uint32_t tensor) { return {file, tensor, {}, {}}; }
    static StoredPart range(uint32_t file, uint32_t tensor, int64_t first, int64_t count) {
        return {file, tensor, {}, {}, first, count};
    }
    static StoredPart box(uint32_t file, uint32_t tensor, Dims offsets, Dims lengths) {
        return {file, tensor, std::move(offsets), std::move(lengths)};
    }
};

// The parts of many chunks in columns. A million plain parts take 32 MB.
class StoredParts {
  public:
    void add(StoredPart part);
    StoredPart operator[](size_t index) const;
    size_t size() const { return plain_.size(); }
    void reserve(size_t count) { plain_.reserve(count); }

  private:
    // A whole stored tensor, or a flat range of one.
    struct Plain {
        uint32_t file = kNone;  // kOther = others_[tensor]
        uint32_t tensor = 0;
        int64_t firstElement = 0;
        int64_t elements = -1;
        std::optional<DType> storedAs, bits;
    };
    static constexpr uint32_t kOther = kNone - 1;
    std::vector<Plain> plain_;
    std::vector<StoredPart> others_;
};

// The files of one checkpoint, each read once. Thread-safe. Indices and references stay valid for the life of
// the object.
class TensorFiles {
  public:
    // The writer of files that are not safetensors. paddleTensorsOnly: objects are left out.
    enum class Writer : uint8_t { torch, paddle, paddleTensorsOnly };

    TensorFiles(const Source& source, const OpenOptions& options, Writer writer = Writer::torch)
        : writer_(writer),
          options_(options),
          openFiles_(source.directory, kMostOpen),
          unpacked_(source.fileSystem, options.scratchDirectory) {}

    // Reads the file's headers, once: later calls return the same index or error. `id`: the file in the
    // catalog. Errors: those of the encodings.
    Result<uint32_t> add(const std::string& name, FileId id = kNone);
    const TensorFile& operator[](uint32_t index) const;
    // Sets the FileId of a file that was read without one. Call only while opening.
    void setPlace(uint32_t index, FileId id);
    // Frees what only an opener needs: names, paths, specials, placements and objects. Tensors stay readable.
    // Call only while opening.
    void forgetNames(uint32_t index);
    uint32_t size() const;

    // Where the elements of a part can be read. Errors: damaged (rule meta.inconsistent for a part outside
    // its tensor, file.truncated), unsupported, changed.
    Result<Extent> extent(const StoredPart& part) const;
    // Compares samples of bytes of two parts of the same dtype and size. True if they differ; false if equal
    // or unknown.
    bool partsDiffer(const StoredPart& part, const StoredPart& other) const;
    // The bytes of a small tensor. Errors: limit for more than OpenOptions::limits.objectBytes.
    Result<std::string> bytesOf(uint32_t file, uint32_t tensor) const;
    // The bytes of contiguous elements; nullopt if they cannot be read or are not stored so.
    std::optional<std::string> bytesAt(const StoredPart& part) const;
    // Whether the checksums in two archives show that two stored tensors are equal.
    bool sameChecksum(uint32_t file, uint32_t tensor, uint32_t otherFile, uint32_t other) const;
    // Whether two stored tensors are equal, by the archives' checksums or the bytes of small tensors. Of
    // large tensors only samples are compared, which can show that they differ. nullopt if unknown.
    std::optional<bool> equal(uint32_t file, uint32_t tensor, uint32_t otherFile, uint32_t other) const;
    // Records why a present file cannot be read; its chunks have no part. Call only while opening.
    void markBroken(FileId id, Error why) { broken_.insert_or_assign(id, std::move(why)); }
    const Error* whyBroken(FileId id) const;
    // An open handle from a small cache. The file must still have the given size.
    Result<std::shared_ptr<const ReadFile>> handle(const std::string& name, uint64_t size) const;

  private:
    static constexpr size_t kMostOpen = 64;  // handles; readers keep those that they use
    struct Slot {
        std::mutex mutex;  // held while the file is read
        std::optional<Result<uint32_t>> added;
    };
    // Elements of a stored tensor from element `first` on.
    struct Elements {
        Extent extent;
        int64_t first = 0;
    };
    Result<uint32_t> read(const std::string& name, FileId id);
    Status addTorch(TensorFile& file, std::shared_ptr<const ReadFile> handle);
    Status addSafetensors(TensorFile& file, const ReadFile& handle);
    Status addPaddle(TensorFile& file, const ReadFile& handle, std::string_view head);
    Result<Elements> elementsOf(const TensorFile& file, uint32_t tensor, int64_t first, int64_t stop) const;
    Status readRecord(const TensorFile& file, const TensorFile::ElementExtent& place, Extent& extent) const;
    Status checkZeros(const StoredPart& part) const;

    const Writer writer_;
    const OpenOptions options_;
    const OpenFiles openFiles_;
    const Materialized unpacked_;
    std::unordered_map<FileId, Error> broken_;  // written only while opening

    mutable std::mutex mutex_;  // guards what follows; never held while a file is read
    std::vector<std::unique_ptr<TensorFile>> files_;
    std::unordered_map<std::string, std::shared_ptr<Slot>> slots_;
};

// Whether the file's first bytes are those of a safetensors file.
bool isSafetensorsStart(const ReadFile& file);

// The value of a pickle that fills these bytes; an empty Value if they are anything else.
Value pickledValue(std::string_view bytes, const Limits& limits);

// Finds a chunk's part when the chunk is located, so that files are read late. Errors: a file that
// contradicts the catalog. Called from many threads.
using FindPart = std::function<Result<StoredPart>(const Catalog& catalog, const ChunkInfo& chunk)>;
// As Reader::fileNotes().
using FindNotes = std::function<Result<std::vector<Note>>(const Catalog& catalog)>;

// Adds the objects of a one-file checkpoint as those of rank 0. `id`: the file in the catalog.
void addObjects(CatalogBuilder& builder, const TensorFile& file, FileId id);

// Makes the reader. `parts`: one for each chunk, with file kNone where the file is missing.
std::unique_ptr<Reader> makePartReader(const Source& source, Catalog catalog,
                                       std::unique_ptr<TensorFiles> files, StoredParts parts,
                                       FindNotes findNotes = {});
std::unique_ptr<Reader> makePartReader(const Source& source, Catalog catalog,
                                       std::unique_ptr<TensorFiles> files, FindPart findPart,
                                       FindNotes findNotes);
// Each chunk is the raw bytes at its offset in the catalog.
std::unique_ptr<Reader> makePartReader(const Source& source, Catalog catalog,
                                       std::unique_ptr<TensorFiles> files);

}  // namespace shardscope

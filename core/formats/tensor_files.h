// Checkpoints that are made of files which hold tensors (torch.save, safetensors, paddle.save): what each
// file holds, and one reader for all of them.
//
// A format of this kind needs a probe and a catalog, nothing else:
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
// A chunk has two sides: its place in the global tensor (CatalogBuilder::Chunk) and its place in a stored one
// (StoredPart). Each can be a box or a flat range, whatever the other is: both list the same elements in the
// same row-major order. A stored box that is not contiguous must have the same lengths in the global tensor.
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
#include "encoding/zip.h"
#include "formats/format.h"
#include "formats/open_files.h"
#include "model/value.h"
#include "storage/materialized.h"

namespace shardscope {

struct StoredTensor {
    std::string name;
    Path path;
    DType dtype = DType::float32;  // as the file states it; Paddle's bfloat16 is uint16
    Dims shape;
    uint32_t sameAs = kNone;  // an earlier tensor of the file with the same storage, place, shape and strides
    uint32_t special = kNone;  // index into TensorFile::specials
    Dims shardOffsets;         // of a shard of a ShardedTensor
    bool buffer = false;       // of a module, not a parameter
    uint64_t offset = 0;       // of the stored entry, as a catalog states it
    uint64_t bytes = 0;
    // Of paddle.save: the array that holds it, or the parts of a split parameter in its row-major order.
    std::vector<PaddleArray> parts;
    std::string parameter;       // its static name; may be empty
    bool loadedAsTensor = true;  // else paddle.load leaves it an array of numpy
};

struct StoredObject {
    std::string name;
    Path path;
    Value value;
};

// One file's contents; holds no handle.
struct TensorFile {
    enum class Kind : uint8_t { torch, safetensors, paddle };
    std::string name;
    FileId id = kNone;
    uint64_t size = 0;
    Kind kind = Kind::torch;
    std::string variant, writer;  // of the encoding, as far as the bytes tell
    std::vector<StoredTensor> tensors;
    std::vector<StoredObject> objects;  // what else a torch.save or paddle.save file holds
    std::vector<SpecialTensor> specials;
    std::vector<torch_save::TensorPlacement> placements;     // of the specials of a torch.save file
    std::vector<std::pair<std::string, std::string>> texts;  // of a safetensors header's __metadata__
    std::vector<Note> notes;
    std::vector<Note>
        recordNotes;  // on the records of a zip archive, for a checkpoint that is this file alone

    uint32_t find(std::string_view name) const;  // the first of this name; kNone when absent
    std::vector<uint32_t> byName;

    // Where a tensor's elements are; not of paddle.save.
    struct ElementExtent {
        const ZipEntry* entry = nullptr;  // of `zip`
        uint64_t first = 0;               // byte in the record; in the file where there is none
        uint64_t length = 0;              // to the end of the last element
        Dims strides;                     // empty = row-major
        bool conjugate = false, negate = false;
    };
    std::vector<ElementExtent> places;
    std::unique_ptr<ZipArchive> zip;  // without its file
    bool bigEndian = false;
};

// The part of a stored tensor that a chunk is: all of it, a box in it, or a flat range of its elements.
struct StoredPart {
    uint32_t file = kNone;                         // index into TensorFiles; kNone = no file holds it
    uint32_t tensor = 0;                           // in that file
    Dims offsets, lengths;                         // the box; both empty = everything
    int64_t firstElement = 0;                      // of a flat range, or of strided elements
    int64_t elements = -1;                         // -1 = no flat range
    std::optional<DType> storedAs = std::nullopt;  // as Extent::storedAs
    std::optional<DType> bits = std::nullopt;  // what the bits are, where the file calls them something else
    Dims strides = {};  // in place of offsets: `lengths` elements at these strides of the row-major tensor
    std::vector<StoredPart> zeros = {};  // padding behind the chunk: flat ranges that must hold zeros only

    static StoredPart whole(uint32_t file, uint32_t tensor) { return {file, tensor, {}, {}}; }
    static StoredPart range(uint32_t file, uint32_t tensor, int64_t first, int64_t count) {
        return {file, tensor, {}, {}, first, count};
    }
    static StoredPart box(uint32_t file, uint32_t tensor, Dims offsets, Dims lengths) {
        return {file, tensor, std::move(offsets), std::move(lengths)};
    }
};

// The parts of many chunks, in columns: a million plain ones take 32 MB.
class StoredParts {
  public:
    void add(StoredPart part);
    StoredPart operator[](size_t index) const;
    size_t size() const { return plain_.size(); }
    void reserve(size_t count) { plain_.reserve(count); }

  private:
    // All of a stored tensor, or a flat range in it.
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

// Thread-safe; what add() returned stays valid as long as this lives.
class TensorFiles {
  public:
    // What wrote the files that are not safetensors.
    enum class Writer : uint8_t { torch, paddle, paddleTensorsOnly };  // the last: objects are left out

    TensorFiles(const Source& source, const OpenOptions& options, Writer writer = Writer::torch)
        : writer_(writer),
          options_(options),
          openFiles_(source.directory, kMostOpen),
          unpacked_(source.fileSystem, options.scratchDirectory) {}

    // Reads what the file says of itself, once: later calls give the same index or error. `id` is its place
    // in the catalog. Errors: as those of the encodings.
    Result<uint32_t> add(const std::string& name, FileId id = kNone);
    const TensorFile& operator[](uint32_t index) const;
    // Of one that was read before its place was known. Call only while opening.
    void setPlace(uint32_t index, FileId id);
    // Forgets what only an opener needs of a file: names and paths, specials, placements and objects. Parts
    // of it stay readable. Call only while opening.
    void forgetNames(uint32_t index);
    uint32_t size() const;

    // Where the elements of a part can be read. Errors: damaged (rule meta.inconsistent for a part that is
    // not in its tensor, file.truncated), unsupported, changed.
    Result<Extent> extent(const StoredPart& part) const;
    // Whether some bytes of two parts of the same dtype and size differ; false where that cannot be told.
    bool partsDiffer(const StoredPart& part, const StoredPart& other) const;
    // The bytes of a small tensor. Errors: limit for more than OpenOptions::limits.objectBytes.
    Result<std::string> bytesOf(uint32_t file, uint32_t tensor) const;
    // Whether the checksums that two archives state show that two stored tensors hold the same.
    bool sameChecksum(uint32_t file, uint32_t tensor, uint32_t otherFile, uint32_t other) const;
    // Whether two stored tensors hold the same, as far as that can be told cheaply: by the checksums that the
    // archives state, or by the bytes of small tensors; large ones differ where some of their bytes do.
    // nullopt where it cannot.
    std::optional<bool> equal(uint32_t file, uint32_t tensor, uint32_t otherFile, uint32_t other) const;
    // Records why a file that is present cannot be read; its chunks have no part. Call only while opening.
    void markBroken(FileId id, Error why) { broken_.insert_or_assign(id, std::move(why)); }
    const Error* whyBroken(FileId id) const;
    // A handle from a small cache; the file must have the size that it had.
    Result<std::shared_ptr<const ReadFile>> handle(const std::string& name, uint64_t size) const;

  private:
    static constexpr size_t kMostOpen = 64;  // readers hold on to what they use
    struct Slot {
        std::mutex mutex;  // held while the file is read
        std::optional<Result<uint32_t>> added;
    };
    // Elements of a stored tensor from number `first` on.
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
    std::optional<std::string> bytesAt(const StoredPart& part) const;

    const Writer writer_;
    const OpenOptions options_;
    const OpenFiles openFiles_;
    const Materialized unpacked_;
    std::unordered_map<FileId, Error> broken_;  // of the time of opening

    mutable std::mutex mutex_;  // of what follows; never held while a file is read
    std::vector<std::unique_ptr<TensorFile>> files_;
    std::unordered_map<std::string, std::shared_ptr<Slot>> slots_;
};

// A whole file by its contents: {"format": ...} of safetensors, or a torch.save file. False for anything
// else.
bool isSafetensorsStart(const ReadFile& file);

// Whether a pickle stands alone in these bytes; then its value.
Value pickledValue(std::string_view bytes, const Limits& limits);

// The part that a chunk is, where the files are only read when a chunk of theirs is asked for. Errors: what
// the file says against the catalog. Called from many threads.
using FindPart = std::function<Result<StoredPart>(const Catalog& catalog, const ChunkInfo& chunk)>;
// As Reader::fileNotes().
using FindNotes = std::function<Result<std::vector<Note>>(const Catalog& catalog)>;

// The objects of a file that is a checkpoint by itself, as those of rank 0; `id` is its place in the catalog.
void addObjects(CatalogBuilder& builder, const TensorFile& file, FileId id);

// The reader of such a checkpoint. With `parts` one for each chunk, of no file where its file is not there.
std::unique_ptr<Reader> makePartReader(const Source& source, Catalog catalog,
                                       std::unique_ptr<TensorFiles> files, StoredParts parts,
                                       FindNotes findNotes = {});
std::unique_ptr<Reader> makePartReader(const Source& source, Catalog catalog,
                                       std::unique_ptr<TensorFiles> files, FindPart findPart,
                                       FindNotes findNotes);
// Where each chunk is the raw bytes that the catalog states.
std::unique_ptr<Reader> makePartReader(const Source& source, Catalog catalog,
                                       std::unique_ptr<TensorFiles> files);

}  // namespace shardscope

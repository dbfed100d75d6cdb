// Checkpoints that are made of torch.save and safetensors files: what each file holds, and a reader whose
// chunks are tensors in them, or parts of such tensors.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "encoding/zip.h"
#include "formats/format.h"
#include "formats/open_files.h"
#include "model/value.h"

namespace shardscope {

struct StoredTensor {
    std::string name;
    Path path;
    DType dtype = DType::float32;
    Dims shape;
    uint32_t sameAs = kNone;  // an earlier tensor of the file with the same storage, place, shape and strides
    uint32_t special = kNone;  // index into TensorFile::specials
    Dims shardOffsets;         // of a shard of a ShardedTensor
    uint64_t offset = 0;       // of the stored entry, as a catalog states it
    uint64_t bytes = 0;
};

struct StoredObject {
    std::string name;
    Path path;
    Value value;
};

// One file's contents; holds no handle.
struct TensorFile {
    std::string name;
    FileId id = kNone;
    uint64_t size = 0;
    bool torch = false;  // else safetensors
    std::vector<StoredTensor> tensors;
    std::vector<StoredObject> objects;  // what else a torch.save file holds
    std::vector<SpecialTensor> specials;
    std::vector<std::pair<std::string, std::string>> texts;  // of a safetensors header's __metadata__
    std::vector<Note> notes;

    uint32_t find(std::string_view name) const;  // kNone when absent
    std::vector<uint32_t> byName;

    // Where a tensor's elements are.
    struct Place {
        const ZipEntry* entry = nullptr;  // of `zip`
        uint64_t first = 0;               // byte in the record; in the file where there is none
        uint64_t length = 0;              // to the end of the last element
        Dims strides;                     // empty = row-major
        bool conjugate = false, negate = false;
    };
    std::vector<Place> places;
    std::unique_ptr<ZipArchive> zip;  // without its file
    bool bigEndian = false;
};

// The part of a stored tensor that a chunk is: all of it, a box in it, or a stretch of its elements.
struct StoredPart {
    uint32_t file = kNone;                         // index into TensorFiles; kNone = it cannot be read
    uint32_t tensor = 0;                           // in that file
    Dims offsets, lengths;                         // the box; both empty = everything
    int64_t firstElement = 0;                      // of a stretch
    int64_t elements = -1;                         // -1 = no stretch
    std::optional<DType> storedAs = std::nullopt;  // as Extent::storedAs
    std::optional<DType> bits = std::nullopt;  // what the bits are, where the file calls them something else
};

class TensorFiles {
  public:
    TensorFiles(const Source& source, const OpenOptions& options)
        : directory_(source.directory),
          fileSystem_(source.fileSystem),
          options_(options),
          openFiles_(source.directory, kMostOpen) {}

    // Reads what the file says of itself; `id` is its place in the catalog. Errors: as those of the
    // encodings.
    Result<uint32_t> add(const std::string& name, FileId id);
    const TensorFile& operator[](uint32_t index) const { return *files_[index]; }
    size_t size() const { return files_.size(); }

    Result<Extent> extent(const StoredPart& part) const;
    // The bytes of a small tensor. Errors: limit for more than OpenOptions::limits.objectBytes.
    Result<std::string> bytesOf(uint32_t file, uint32_t tensor) const;
    // Remembers that a file which is there cannot be read, and why; its chunks have no part.
    void markBroken(FileId id, Error why) { broken_.emplace_back(id, std::move(why)); }
    const Error* whyBroken(FileId id) const;
    // A handle from a small cache; the file must have the size that it had.
    Result<std::shared_ptr<const ReadFile>> handle(const std::string& name, uint64_t size) const;

  private:
    static constexpr size_t kMostOpen = 64;  // readers hold on to what they use
    Status addTorch(TensorFile& file, std::shared_ptr<const ReadFile> handle);
    Status addSafetensors(TensorFile& file, const ReadFile& handle);

    std::shared_ptr<Directory> directory_;
    std::shared_ptr<FileSystem> fileSystem_;
    OpenOptions options_;
    std::vector<std::unique_ptr<TensorFile>> files_;
    std::vector<std::pair<FileId, Error>> broken_;
    mutable std::mutex mutex_;
    OpenFiles openFiles_;
    mutable std::vector<std::pair<const ZipEntry*, std::shared_ptr<const ReadFile>>> unpacked_;
};

// A whole file by its contents: {"format": ...} of safetensors, or a torch.save file. False for anything
// else.
bool isSafetensorsStart(const ReadFile& file);

// Whether a pickle stands alone in these bytes; then its value.
Value pickledValue(std::string_view bytes, const Limits& limits);

// The reader of such a checkpoint: one part for each chunk, none for chunks whose file is not there.
std::unique_ptr<Reader> makePartReader(Catalog catalog, std::unique_ptr<TensorFiles> files,
                                       std::vector<StoredPart> parts);

}  // namespace shardscope

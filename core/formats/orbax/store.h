// The key-value store of an item: an OCDBT database, or plain files. Finds its zarr arrays and the location
// of each chunk.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "encoding/ocdbt.h"
#include "encoding/zarr_array.h"
#include "formats/format.h"

namespace shardscope::orbax {

// Values of StoredChunk::inTree that are not an offset.
constexpr uint64_t kInFile = UINT64_MAX;      // the bytes are in the file
constexpr uint64_t kFilled = UINT64_MAX - 1;  // the chunk is not stored: all fill value

struct StoredChunk {
    int64_t place = 0;  // row-major index in the chunk grid
    FileId file = kNone;
    uint64_t offset = 0, length = 0;
    uint64_t inTree = kInFile;  // or kFilled, or the offset in Values
};

struct StoredArray {
    std::string name;
    ZarrArray array;
    FileId about = kNone;             // the file that describes the array
    uint64_t offset = 0, length = 0;  // of the description in that file
    std::vector<StoredChunk> chunks;  // sorted by place, without replicas
};

// Chunk bytes that the metadata holds itself: values in the database's tree, numbers in MessagePack.
using Values = std::vector<std::byte>;

// The files of the checkpoint by path, as the catalog lists them.
class FileTable {
  public:
    FileTable(const Source& source, CatalogBuilder& builder) : source_(source), builder_(builder) {}
    // Takes size and state of a new file from the directory.
    FileId add(const std::string& path, bool metadata);
    // Takes the size from a listing.
    FileId addListed(const std::string& path, uint64_t size, bool metadata);

  private:
    const Source& source_;
    CatalogBuilder& builder_;
    std::map<std::string, FileId, std::less<>> known_;
};

struct Store {
    bool ocdbt = false;
    std::map<std::string, StoredArray, std::less<>> arrays;
    std::map<std::string, Dims, std::less<>> grids;  // chunk shapes, kept after arrays are moved out
    std::vector<Note> notes;                         // arrays that cannot be read, unknown keys
};

// Adds the arrays of a database to `store`. `values` receives chunk bytes that are in the database's tree.
// Errors: limit, cancelled, those of the file system. An array that cannot be read is a note.
Status addDatabase(const Source& source, const OcdbtIndex& index, FileTable& files, Values& values,
                   Store& store, const StopToken& stop);

// Adds the arrays below `prefix`: those in `names`, and those that are directories there.
Status addPlainArrays(const Source& source, const std::string& prefix, const std::vector<std::string>& names,
                      FileTable& files, Store& store, const StopToken& stop);

// Reads a metadata file of at most `most` bytes. Errors: notFound (file.missing), limit, those of the file.
Result<std::string> wholeFile(const Directory& directory, const std::string& path, uint64_t most);

// What the reader of every kind of checkpoint that this format opens needs besides the catalog.
struct Contents {
    // By tensor; nullopt if its chunks are raw bytes at the catalog's offsets.
    std::vector<std::optional<ZarrArray>> arrays;
    std::vector<uint64_t> inTree;  // by chunk: kInFile, kFilled, or its offset in `values`
    Values values;
};

std::unique_ptr<Reader> makeReader(const Source& source, const OpenOptions& options, Catalog catalog,
                                   Contents contents);

}  // namespace shardscope::orbax

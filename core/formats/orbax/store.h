// The key-value store of an item: an OCDBT database, or plain files. Finds the zarr arrays in it and where
// each of their chunks is.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "encoding/ocdbt.h"
#include "encoding/zarr_array.h"
#include "formats/format.h"

namespace shardscope::orbax {

// Where the bytes of a chunk are that no file has as they are.
constexpr uint64_t kInFile = UINT64_MAX;      // they are in the file
constexpr uint64_t kFilled = UINT64_MAX - 1;  // they are not stored: the fill value

struct StoredChunk {
    int64_t place = 0;  // in the grid, row-major
    FileId file = kNone;
    uint64_t offset = 0, length = 0;
    uint64_t inTree = kInFile;  // else where the value begins in Values
};

struct StoredArray {
    std::string name;
    ZarrArray array;
    FileId about = kNone;             // that describes it
    uint64_t offset = 0, length = 0;  // of the description
    std::vector<StoredChunk> chunks;  // by place, each once
};

// Bytes that the metadata holds itself: values of the database's tree, numbers of MessagePack.
using Values = std::vector<std::byte>;

// The files of the checkpoint by path, as the catalog lists them.
class FileTable {
  public:
    FileTable(const Source& source, CatalogBuilder& builder) : source_(source), builder_(builder) {}
    // Takes size and state from the directory where it is new.
    FileId add(const std::string& path, bool metadata);
    // With what a listing says.
    FileId addListed(const std::string& path, uint64_t size, bool metadata);

  private:
    const Source& source_;
    CatalogBuilder& builder_;
    std::map<std::string, FileId, std::less<>> known_;
};

struct Store {
    bool ocdbt = false;
    std::map<std::string, StoredArray, std::less<>> arrays;
    std::map<std::string, Dims, std::less<>> grids;  // shapes of chunks; arrays are moved on into the catalog
    std::vector<Note> notes;                         // arrays that cannot be read, strange keys
};

// The arrays of a database. `values` takes those that are in its tree; paths of files begin with `prefix`.
// Errors: limit, cancelled, those of the file system; an array that cannot be read is a note.
Status addDatabase(const Source& source, const OcdbtIndex& index, FileTable& files, Values& values,
                   Store& store, const StopToken& stop);

// The arrays below `prefix` that have the given names or are directories there.
Status addPlainArrays(const Source& source, const std::string& prefix, const std::vector<std::string>& names,
                      FileTable& files, Store& store, const StopToken& stop);

// All of a file of metadata. Errors: notFound (file.missing), limit, those of the file.
Result<std::string> wholeFile(const Directory& directory, const std::string& path, uint64_t most);

}  // namespace shardscope::orbax

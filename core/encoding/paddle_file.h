// Files of paddle.save: a pickled state dict whose tensors are numpy arrays, read without the arrays. The
// files of paddle's distributed checkpoints are such files too. Source: paddle/framework/io.py (save, load,
// _parse_load_result) and io_utils.py (_unpack_saved_dict, _pack_loaded_dict).
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/stop.h"
#include "model/catalog.h"
#include "storage/file_system.h"

namespace shardscope {

// An array in a file.
struct PaddleArray {
    enum class Raw : uint8_t {
        plain,    // the elements stand at `offset`
        text,     // they do as UTF-8 whose characters are the bytes (protocol 2)
        inMemory  // a small array: `bytes`
    };
    DType dtype = DType::float32;  // numpy's: bfloat16 is uint16, float8 is int8
    bool bigEndian = false;
    bool columnMajor = false;
    Raw raw = Raw::plain;
    Dims shape;
    uint64_t offset = 0;  // in the file; 0 for inMemory
    uint64_t length = 0;  // bytes there
    std::string bytes;
};

struct PaddleEntry {
    std::string name;
    Path path;
    std::string parameter;  // the static name that the file gives the tensor; may be empty
    // Whether paddle.load makes a tensor of it; else it stays an array of numpy.
    bool tensor = true;
    Dims shape;
    // One, or the parts of a big parameter: stretches of its row-major order, one after the other.
    std::vector<PaddleArray> parts;
    uint32_t sameAs = kNone;  // an earlier entry that is the same array
};

struct PaddleObject {
    std::string name;
    Path path;
    Value value;
};

struct PaddleFile {
    bool named = false;   // has the table of parameter names: a state dict ("form A")
    bool tuples = false;  // tensors are (name, array) pairs ("form B")
    int protocol = 0;
    std::vector<PaddleEntry> entries;  // in the order of the file
    std::vector<PaddleObject> objects;
    std::vector<Note> notes;  // without a file name
};

struct PaddleFileLimits {
    uint64_t outlineBytes = uint64_t{2} << 30;
    uint64_t objectBytes = uint64_t{64} << 20;
    bool objects = true;  // whether objects and notes about the pickle's names are wanted
};

// Errors: as outlinePickle; damaged arrays; limit for objects that repeat their parts.
Result<PaddleFile> readPaddleFile(const ReadFile& file, const PaddleFileLimits& limits,
                                  const StopToken& stop);

// The dtype of an array without any metadata's word: Paddle has no uint16, its bfloat16 is stored as that.
DType paddleDType(DType stored);

// Whether the first bytes are those of a pickle of protocol 2 or later.
bool startsAsPickle(std::string_view first);

// Where the elements of arrays can be read by position; unpacks what is spelled as text. Thread-safe.
class PaddleArrayPlaces {
  public:
    PaddleArrayPlaces(std::shared_ptr<FileSystem> fileSystem, std::string scratchDirectory, StopToken stop);

    struct Place {
        std::shared_ptr<const ReadFile> file;
        uint64_t offset = 0;
    };
    // Errors: damaged when the bytes are not as many as shape and dtype need.
    Result<Place> place(const std::shared_ptr<const ReadFile>& file, const PaddleArray& array) const;

  private:
    struct Slot {
        std::mutex mutex;
        std::weak_ptr<const ReadFile> file;
    };
    Result<std::shared_ptr<const ReadFile>> unpack(const std::shared_ptr<const ReadFile>& file,
                                                   const PaddleArray& array, uint64_t bytes) const;

    std::shared_ptr<FileSystem> fileSystem_;
    std::string scratchDirectory_;
    StopToken stop_;
    mutable std::mutex mutex_;
    mutable std::map<std::pair<std::string, uint64_t>, std::shared_ptr<Slot>> slots_;
    mutable std::list<std::shared_ptr<const ReadFile>> recent_;
};

}  // namespace shardscope

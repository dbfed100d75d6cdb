// Files of paddle.save: a pickled state dict whose tensors are numpy arrays, read without the arrays. The
// files of paddle's distributed checkpoints are such files too. Source: paddle/framework/io.py (save, load,
// _parse_load_result) and io_utils.py (_unpack_saved_dict, _pack_loaded_dict).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/stop.h"
#include "model/catalog.h"
#include "storage/file_system.h"
#include "storage/materialized.h"

namespace shardscope {

// The entry of a state dict that gives the parameters' names of their own.
inline constexpr std::string_view kPaddleNameTable = "StructuredToParameterName@@";

// An array in a file.
struct PaddleArray {
    enum class Raw : uint8_t {
        plain,    // the elements stand at `offset`
        text,     // the same as UTF-8 whose characters are the bytes (protocol 2)
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
    // One, or the parts of a big parameter: ranges of its row-major order, one after the other.
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

// The dtype of an array where no metadata states it: Paddle has no uint16, and stores bfloat16 as uint16.
DType paddleDType(DType stored);

// Whether the first bytes are those of a pickle of protocol 2 or later.
bool startsAsPickle(std::string_view first);

// Where elements can be read by position.
struct PaddleExtent {
    std::shared_ptr<const ReadFile> file;
    uint64_t offset = 0;
};
// The elements of one array in `file`; an array that is spelled as text is unpacked first. Errors: damaged
// when the bytes are not as many as shape and dtype need.
Result<PaddleExtent> placeOfArray(const std::shared_ptr<const ReadFile>& file, const PaddleArray& array,
                                  const Materialized& cache, const StopToken& stop);
// The elements of a split parameter of this shape, joined from its parts. Errors: damaged when they do not
// fit.
Result<PaddleExtent> placeOfParts(const std::shared_ptr<const ReadFile>& file, std::string_view name,
                                  DimSpan shape, std::span<const PaddleArray> parts,
                                  const Materialized& cache, const StopToken& stop);

}  // namespace shardscope

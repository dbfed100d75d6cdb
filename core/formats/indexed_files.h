// Sets of files: an index beside them, *.safetensors.index.json or *.bin.index.json, which says what file
// holds which tensor, and names that number the files of a set. Notes where index and files disagree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "encoding/safetensors_index.h"
#include "formats/format.h"
#include "formats/tensor_files.h"

namespace shardscope {

struct IndexedFiles : safetensors::Index {
    // Errors: limit, those of reading, and those of parseIndex(), with the file.
    static Result<IndexedFiles> read(const Source& source, const OpenOptions& options,
                                     const std::string& name);

    std::string name;  // of the index
    uint64_t size = 0;
    Note::Lacks lacks = Note::Lacks::nothing;  // what a conversion lacks if a tensor of the index is missing

    FileInfo info() const;  // of the index itself
    const std::string& fileWith(size_t tensor) const { return files[fileOf[tensor]]; }

    enum class Found : uint8_t { inFile, nowhere, fileMissing, fileBroken };
    // Adds a note for each tensor of the index that the files lack; true if there is any. `find` gets an
    // index into `names`.
    bool noteLacking(const std::function<Found(size_t tensor)>& find,
                     const std::function<void(Note)>& add) const;
    // The note on a tensor that a file holds and the index does not name.
    Note unnamed(std::string_view file, std::string_view tensor) const;
    // The note on a tensor of `file` that the index takes from the file `indexed`, where the two differ:
    // loaders that read all files take the last one.
    std::optional<Note> otherCopy(const TensorFiles& all, uint32_t indexed, uint32_t file,
                                  uint32_t tensor) const;
};

// The parts of a file name of a set: <stem>-IIIII-of-NNNNN<ending>.
struct SetName {
    uint32_t rank = kNone;  // of a leading shard-RRRRR-, counted from 0 (torch's HuggingFaceStorageWriter)
    std::string stem;       // "model"
    uint32_t index = 0;     // I, from 1; 0 = not part of a numbered set
    uint32_t count = 0;     // N
};
// `ending`: ".safetensors", ".bin"; a name that does not have it is not part of a set.
SetName parseSetName(std::string_view fileName, std::string_view ending);
// The note on each file that the names of the others say belongs to their set. Of those of ranks: where no
// rank has one, because a rank without any tensor of a part writes no file for it.
std::vector<Note> missingOfSets(std::span<const SetName> present, std::string_view ending);
// The note on a file of a set without an index whose tensors are all in other files, too.
Note copyInSet(std::string_view file);

}  // namespace shardscope

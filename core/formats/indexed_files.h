// An index beside a set of files, *.safetensors.index.json: which file holds which tensor. Notes where index
// and files disagree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "encoding/safetensors_index.h"
#include "formats/format.h"

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
};

}  // namespace shardscope

// An index beside a set of files, *.safetensors.index.json: which file has which tensor, and what of that is
// not so.
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
    Note::Lacks lacks = Note::Lacks::nothing;  // what a conversion lacks without a tensor that it names

    FileInfo info() const;  // of the index itself
    const std::string& fileWith(size_t tensor) const { return files[fileOf[tensor]]; }

    enum class Found : uint8_t { inFile, nowhere, fileMissing, fileBroken };
    // Notes what it names and the files lack; whether that is anything. `find` is given the place in `names`.
    bool noteLacking(const std::function<Found(size_t tensor)>& find,
                     const std::function<void(Note)>& add) const;
    // Of a tensor that a file has and it does not name.
    Note unnamed(std::string_view file, std::string_view tensor) const;
};

}  // namespace shardscope

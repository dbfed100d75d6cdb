// Opens a safetensors file, a set of files with or without an index, or the files of torch's
// HuggingFaceStorageWriter.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/format.h"

namespace shardscope::safetensors {

// The parts of a file name of a set: [shard-RRRRR-]<stem>-IIIII-of-NNNNN.safetensors.
struct SetName {
    uint32_t rank = kNone;  // of shard-RRRRR, counted from 0
    std::string stem;       // "model"
    uint32_t index = 0;     // I, from 1; 0 = not part of a numbered set
    uint32_t count = 0;     // N
};
SetName parseSetName(std::string_view fileName);

// The option of opening, and the value with which an index counts for nothing.
inline constexpr std::string_view kWeightMap = "--weight-map", kIgnore = "ignore";

bool isTensorFile(std::string_view name);
bool isIndexFile(std::string_view name);

Result<std::unique_ptr<Reader>> openCheckpoint(const Source& source, const OpenOptions& options);

}  // namespace shardscope::safetensors

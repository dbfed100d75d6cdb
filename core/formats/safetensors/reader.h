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

// The option of opening, and the value with which an index counts for nothing.
inline constexpr std::string_view kWeightMap = "--weight-map", kIgnore = "ignore";

bool isTensorFile(std::string_view name);
bool isIndexFile(std::string_view name);

Result<std::unique_ptr<Reader>> openCheckpoint(const Source& source, const OpenOptions& options);

}  // namespace shardscope::safetensors

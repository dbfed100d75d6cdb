// Opens a safetensors file, a set of files with or without an index, or the files of torch's
// HuggingFaceStorageWriter; lays out one file, or a set with an index. Private to this format.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "formats/format.h"

namespace shardscope::safetensors {

// The option of opening, and the value with which an index counts for nothing.
inline constexpr std::string_view kWeightMap = "--weight-map", kIgnore = "ignore";

bool isTensorFile(std::string_view name);
bool isIndexFile(std::string_view name);
Result<std::unique_ptr<Reader>> openCheckpoint(const Source& source, const OpenOptions& options);

constexpr uint64_t kDefaultMaxFileSize = 5'000'000'000;  // as huggingface_hub: decimal gigabytes

std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions& options);
Result<std::unique_ptr<TargetLayout>> makeLayout(const Catalog& target, const WriteOptions& options);

}  // namespace shardscope::safetensors

// Lays out a safetensors destination: one file, or a set with an index.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "formats/format.h"

namespace shardscope::safetensors {

constexpr uint64_t kDefaultMaxFileSize = 5'000'000'000;  // as huggingface_hub: decimal gigabytes

std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions& options);
Result<std::unique_ptr<TargetLayout>> makeLayout(const Catalog& target, const WriteOptions& options);

}  // namespace shardscope::safetensors

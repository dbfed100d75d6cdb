// Lays out rank files as verl and Accelerate write them. Private to this format.
#pragma once

#include <memory>
#include <vector>

#include "formats/format.h"

namespace shardscope::torch_ranks {

// "verl" (default) or "accelerate" selects the file names. With "-cpu" the mesh has CPU devices, else CUDA
// devices.
std::optional<Path> pathFor(const Path& path, bool optimizer);
std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions& options);
Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options);

}  // namespace shardscope::torch_ranks

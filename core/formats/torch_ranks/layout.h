// Writes the files of ranks as verl and Accelerate do. Private to this format.
#pragma once

#include <memory>
#include <vector>

#include "formats/format.h"

namespace shardscope::torch_ranks {

// "verl" (usual) or "accelerate": names of the files. With "-cpu" the mesh is of CPUs, else of CUDA devices.
std::vector<std::string> writtenVariants();

std::optional<Path> pathFor(const Path& path, bool optimizer);
std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions& options);
Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options);

}  // namespace shardscope::torch_ranks

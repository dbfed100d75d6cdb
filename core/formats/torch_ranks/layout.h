// Writes the files of ranks as verl and Accelerate do. Private to this format.
#pragma once

#include <memory>
#include <vector>

#include "formats/format.h"

namespace shardscope::torch_ranks {

// "verl" (usual) or "accelerate": names of the files, and whether an optimizer numbers its parameters. With
// "-cpu" the mesh is of CPUs, else of CUDA devices.
std::vector<std::string> writtenVariants();

std::optional<Path> pathFor(const Path& path, bool optimizer);
// Optimizer state that is listed by name gets the numbers that the optimizer gives its parameters.
Format::NewPath pathsFor(const Catalog& source, const std::function<Result<Value>(ObjectId)>& read,
                         const WriteOptions& options);
std::vector<LeftOut> cannotHold(const Catalog& target);
Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options);

}  // namespace shardscope::torch_ranks

// Sorts the tensors and objects of a target into the files of a universal checkpoint, and lays them out.
// Private to this format.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "formats/format.h"

namespace shardscope::deepspeed {

// Implement Format::pathFor and Format::copies.
std::optional<Path> targetPath(const Path& path, bool optimizer);
std::vector<TargetCopy> targetCopies(const Catalog& target, const WriteOptions& options);

std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions& options);
// Errors: impossible for a parameter whose name is not a valid directory name.
Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options);

}  // namespace shardscope::deepspeed

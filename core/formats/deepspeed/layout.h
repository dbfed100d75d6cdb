// Lays out universal checkpoints. Private to this format.
#pragma once

#include <memory>
#include <vector>

#include "formats/format.h"

namespace shardscope::deepspeed {

std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions& options);
// Errors: impossible for a parameter whose name is not a valid
// directory name.
Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options);

}  // namespace shardscope::deepspeed

// Writes universal checkpoints. Private to this format.
#pragma once

#include <memory>
#include <vector>

#include "formats/format.h"

namespace shardscope::deepspeed {

std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions& options);
// Errors: usage for another variant than universal; impossible for a parameter whose name cannot be a
// directory's.
Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options);

}  // namespace shardscope::deepspeed

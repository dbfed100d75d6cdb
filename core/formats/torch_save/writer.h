// torch.save files, written: one zip archive as torch 2.15 lays it out.
#pragma once

#include <memory>
#include <vector>

#include "formats/format.h"

namespace shardscope::torch_save {

std::vector<LeftOut> cannotHold(const Catalog& target);
Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options);

}  // namespace shardscope::torch_save

// ColossalAI's layouts, written. Private to this format.
#pragma once

#include <memory>
#include <vector>

#include "formats/format.h"

namespace shardscope::colossalai {

// "" and "distributed" write safetensors files; "distributed-bin", "gathered", "gathered-bin".
std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions& options);
Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options);

}  // namespace shardscope::colossalai

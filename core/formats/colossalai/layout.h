// Lays out destinations in ColossalAI's layouts. Private to this format.
#pragma once

#include <memory>
#include <vector>

#include "formats/format.h"

namespace shardscope::colossalai {

// Variants: "distributed" (also ""), "gathered"; with "-bin" the files are torch.save instead of safetensors.
std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions& options);
Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options);

}  // namespace shardscope::colossalai

// Safetensors files with nested keys, written: model, optim and train. Private to this format.
#pragma once

#include <memory>
#include <vector>

#include "formats/format.h"

namespace shardscope::olmo {

std::vector<LeftOut> cannotHold(const Catalog& wanted);
Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& wanted);

}  // namespace shardscope::olmo

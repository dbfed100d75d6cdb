// Lays out a distributed checkpoint as Paddle 3.3 or 3.0 writes it. Sources: save_state_dict.py and
// metadata.py of paddle.distributed.checkpoint; docs/formats/paddle.md.
#pragma once

#include "formats/format.h"

namespace shardscope::paddle {

// Variants: "3.3" (also ""), "3.0".
std::vector<std::string> writtenVariants();
std::vector<LeftOut> cannotHoldInPaddle(const Catalog& target, const WriteOptions& options);
// `target` must outlive the layout and hold no entry that cannotHoldInPaddle() names. Errors: usage for
// another variant.
Result<std::unique_ptr<TargetLayout>> layoutDist(const Catalog& target, const WriteOptions& options);

}  // namespace shardscope::paddle

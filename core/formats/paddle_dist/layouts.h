// Recognizes and opens distributed checkpoints and files of paddle.save; lays out distributed checkpoints as
// Paddle 3.3 or 3.0 writes them. Sources: save_state_dict.py and metadata.py of
// paddle.distributed.checkpoint; docs/formats/paddle.md.
#pragma once

#include <string>
#include <vector>

#include "formats/format.h"

namespace shardscope::paddle {

Probe probeDist(const Source& source);
// `options.variant` "id=N" selects one of several saves in the directory. Default: the highest complete id.
Result<std::unique_ptr<Reader>> openDist(const Source& source, const OpenOptions& options);

Probe probeSave(const Source& source);
Result<std::unique_ptr<Reader>> openSave(const Source& source, const OpenOptions& options);

// Variants: "3.3" (also ""), "3.0".
std::vector<std::string> writtenVariants();
std::vector<LeftOut> cannotHoldInPaddle(const Catalog& target, const WriteOptions& options);
// `target` must outlive the layout and hold no entry that cannotHoldInPaddle() names. Errors: usage for
// another variant.
Result<std::unique_ptr<TargetLayout>> layoutDist(const Catalog& target, const WriteOptions& options);

}  // namespace shardscope::paddle

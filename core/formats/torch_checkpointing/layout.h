// Writes items as torch_checkpointing does. Private to this format.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "formats/format.h"

namespace shardscope::torch_checkpointing {

// The first key of a path is the item: "model" or "optimizer" get what has none, and an object of one key is
// an item by itself.
Format::NewPath pathsFor(const Catalog& source, const Format::ReadValue& read, const WriteOptions& options);
std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions& options);
Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options);

}  // namespace shardscope::torch_checkpointing

// Lays out a destination as torch_checkpointing writes it. Private to this format.
#pragma once

#include <memory>
#include <vector>

#include "formats/format.h"

namespace shardscope::torch_checkpointing {

// The first key of a path is the item. Entries without an item go to "model" or "optimizer". An object with a
// path of one key is its own item.
Format::NewPath pathsFor(const Catalog& source, const Format::ReadValue& read, const WriteOptions& options);
std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions& options);
Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options);

}  // namespace shardscope::torch_checkpointing

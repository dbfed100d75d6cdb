// Lays out safetensors files with nested keys: model, optim and train. Private to this format.
#pragma once

#include <memory>
#include <vector>

#include "formats/format.h"

namespace shardscope::olmo {

// Model, optimizer and trainer state are separate files. Weights lose the key "model"; optimizer and trainer
// state get the keys "optim" and "train".
std::optional<Path> pathFor(const Path& path, bool optimizer);
std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions& options);
Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options);

}  // namespace shardscope::olmo

// Safetensors files with nested keys, written: model, optim and train. Private to this format.
#pragma once

#include <memory>
#include <vector>

#include "formats/format.h"

namespace shardscope::olmo {

// A state dict of weights is a file of its own here, and so are those of optimizer and trainer: "model" is no
// part of a name, "optim" always is one.
std::optional<Path> pathFor(const Path& path, bool optimizer);
std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions& options);
Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options);

}  // namespace shardscope::olmo

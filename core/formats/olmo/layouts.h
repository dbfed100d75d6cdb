// Opens OLMo's layouts (unsharded, local and legacy), and lays out safetensors files with nested keys: model,
// optim and train. Private to this format.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/format.h"

namespace shardscope::olmo {

// "rank12.pt" -> 12.
std::optional<uint32_t> rankOf(std::string_view fileName);
// Removes the infix that FSDP adds to names.
std::string withoutWrapper(std::string_view name);

Result<std::unique_ptr<Reader>> openUnsharded(const Source& source, const OpenOptions& options);
Result<std::unique_ptr<Reader>> openLocal(const Source& source, const OpenOptions& options);
Result<std::unique_ptr<Reader>> openLegacy(const Source& source, const OpenOptions& options);

// Model, optimizer and trainer state are separate files. Weights lose the key "model"; optimizer and trainer
// state get the keys "optim" and "train".
std::optional<Path> pathFor(const Path& path, bool optimizer);
std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions& options);
Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options);

}  // namespace shardscope::olmo

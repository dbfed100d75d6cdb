// Opens OLMo's layouts (unsharded, local and legacy), and lays out safetensors files with nested keys: model,
// optim and train. Private to this format.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/format.h"
#include "formats/tensor_assembly.h"

namespace shardscope::olmo {

// "rank12.pt" -> 12.
std::optional<uint32_t> rankOf(std::string_view fileName);
// Removes the infix that FSDP adds to names.
std::string withoutWrapper(std::string_view name);

// What the trainer of each rank has counted: the same on all ranks of one save.
class TrainerCounters {
  public:
    TrainerCounters(TensorAssembly& assembly, int64_t world) : assembly_(assembly), world_(world) {}
    // Notes what differs from the first file (save.mixed) or from the number of ranks. Returns whether this
    // is the first.
    bool add(uint32_t file);

  private:
    TensorAssembly& assembly_;
    int64_t world_;
    std::map<std::string, int64_t, std::less<>> first_;
    std::string firstFile_;
};

Result<std::unique_ptr<Reader>> openUnsharded(const Source& source, const OpenOptions& options);
Result<std::unique_ptr<Reader>> openLocal(const Source& source, const OpenOptions& options);
Result<std::unique_ptr<Reader>> openLegacy(const Source& source, const OpenOptions& options);

// Model, optimizer and trainer state are separate files. Weights lose the key "model"; optimizer and trainer
// state get the keys "optim" and "train".
std::optional<Path> pathFor(const Path& path, bool optimizer);
std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions& options);
Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options);

}  // namespace shardscope::olmo

// Opens a torch.save file: builds the catalog of its tensors and objects.
#pragma once

#include <memory>
#include <string>

#include "formats/format.h"

namespace shardscope::torch_save {

// `entry`: the file's name in the directory. Errors: as openTorchFile() and walk().
Result<std::unique_ptr<Reader>> openCheckpoint(const Source& source, const std::string& entry,
                                               const OpenOptions& options);

}  // namespace shardscope::torch_save

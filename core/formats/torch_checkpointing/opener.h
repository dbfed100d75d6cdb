// Opens a checkpoint's metadata and the files of all ranks. Private to this format.
#pragma once

#include <memory>

#include "formats/format.h"

namespace shardscope::torch_checkpointing {

Result<std::unique_ptr<Reader>> openItems(const Source& source, const OpenOptions& options);

}  // namespace shardscope::torch_checkpointing

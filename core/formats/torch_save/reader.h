// An open torch.save file: the catalog, and where each tensor lies.
#pragma once

#include <memory>
#include <string>

#include "encoding/torch_file.h"
#include "formats/format.h"

namespace shardscope::torch_save {

Result<std::unique_ptr<Reader>> makeReader(Opened opened, std::string fileName,
                                           std::shared_ptr<FileSystem> fileSystem,
                                           const OpenOptions& options);

}  // namespace shardscope::torch_save

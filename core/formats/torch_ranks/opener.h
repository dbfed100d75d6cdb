// Opens the files of all ranks as one checkpoint. Private to this format.
#pragma once

#include <memory>

#include "formats/format.h"

namespace shardscope::torch_ranks {

Result<std::unique_ptr<Reader>> openRankFiles(const Source& source, const OpenOptions& options);

}  // namespace shardscope::torch_ranks

// Opens the distributed and the gathered layouts. Private to this format.
#pragma once

#include <memory>

#include "formats/format.h"

namespace shardscope::colossalai {

Result<std::unique_ptr<Reader>> openDistributed(const Source& source, const OpenOptions& options);
Result<std::unique_ptr<Reader>> openGathered(const Source& source, const OpenOptions& options);

}  // namespace shardscope::colossalai

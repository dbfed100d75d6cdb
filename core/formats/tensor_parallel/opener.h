// Opens the files of tensor-parallel ranks as one checkpoint. Private to this format.
#pragma once

#include <memory>

#include "formats/format.h"

namespace shardscope::tensor_parallel {

// Errors: usage for an invalid --tp-dim. Damaged files are notes.
Result<std::unique_ptr<Reader>> openRanks(const Source& source, const OpenOptions& options);

}  // namespace shardscope::tensor_parallel

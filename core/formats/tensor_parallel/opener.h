// Puts the files of tensor-parallel ranks together. Private to this format.
#pragma once

#include <memory>

#include "formats/format.h"

namespace shardscope::tensor_parallel {

// Errors: usage for a --tp-dim that cannot be read; those of the encodings are notes.
Result<std::unique_ptr<Reader>> openRanks(const Source& source, const OpenOptions& options);

}  // namespace shardscope::tensor_parallel

// Opens the mp_rank_* directories of --ckpt-format torch. Private to this format.
#pragma once

#include <memory>

#include "formats/megatron/place.h"

namespace shardscope::megatron {

// Errors: limit, cancelled, usage for a --tp-dim that cannot be read; damaged files of ranks are notes.
Result<std::unique_ptr<Reader>> openLegacy(const Source& source, const OpenOptions& options,
                                           const Place& place);

}  // namespace shardscope::megatron

// The two layouts of this format.
#pragma once

#include <memory>

#include "formats/format.h"

namespace shardscope::paddle_nlp {

Result<std::unique_ptr<Reader>> openHybrid(const Source& source, const OpenOptions& options);

// Unified checkpoint: safetensors files with whole tensors, or of each rank (ignore_merge_optimizer).
Probe probeUnified(const Source& source);
Result<std::unique_ptr<Reader>> openUnified(const Source& source, const OpenOptions& options);

}  // namespace shardscope::paddle_nlp

// The two layouts of this format.
#pragma once

#include <memory>
#include <string>

#include "formats/format.h"

namespace shardscope::paddle_nlp {

Result<std::unique_ptr<Reader>> openHybrid(const Source& source, const OpenOptions& options);

// A JSON file of the directory, whole. Errors: limit, and those of reading.
Result<std::string> metadataText(const Source& source, const OpenOptions& options,
                                 const DirectoryEntry& entry);

// Unified checkpoint: safetensors files with whole tensors, or of each rank (ignore_merge_optimizer).
Probe probeUnified(const Source& source);
Result<std::unique_ptr<Reader>> openUnified(const Source& source, const OpenOptions& options);

}  // namespace shardscope::paddle_nlp

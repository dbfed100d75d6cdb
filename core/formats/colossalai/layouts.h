// Opens the distributed and the gathered layouts, and lays out destinations in them. Private to this format.
#pragma once

#include <memory>
#include <vector>

#include "formats/format.h"

namespace shardscope::colossalai {

Result<std::unique_ptr<Reader>> openDistributed(const Source& source, const OpenOptions& options);
Result<std::unique_ptr<Reader>> openGathered(const Source& source, const OpenOptions& options);

// Variants: "distributed" (also ""), "gathered"; with "-bin" the files are torch.save instead of safetensors.
std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions& options);
Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options);

}  // namespace shardscope::colossalai

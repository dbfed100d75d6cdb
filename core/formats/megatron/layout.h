// A torch_dist directory as megatron-core 0.16 loads it. Private to this format.
//
// Source: megatron/core/dist_checkpointing (core.py, serialization.py) of megatron-core 0.16.
#pragma once

#include <memory>

#include "formats/format.h"

namespace shardscope::megatron {

inline constexpr const char* kRunVariant = "run";

// The directory itself, or with the variant `run` that of a run with one iteration in it. `target` outlives
// the layout. Errors: limit, impossible.
Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options);

}  // namespace shardscope::megatron

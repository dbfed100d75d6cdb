// Lays out a torch_dist directory that megatron-core 0.16 loads. Private to this format.
//
// Source: megatron/core/dist_checkpointing (core.py, serialization.py) of megatron-core 0.16.
#pragma once

#include <memory>

#include "formats/format.h"

namespace shardscope::megatron {

inline constexpr const char* kRunVariant = "run";

// Lays out the checkpoint directory; with variant `run`, the directory of a run with one iteration. `target`
// must outlive the layout. Errors: limit, impossible.
Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options);

}  // namespace shardscope::megatron

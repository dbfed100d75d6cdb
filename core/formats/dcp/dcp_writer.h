// Lays out a DCP directory and writes its `.metadata`; also for Megatron-Core's torch_dist. Source of the
// facts: torch/distributed/checkpoint/{metadata,filesystem,default_planner}.py, as docs/formats/dcp.md lists
// them.
#pragma once

#include <memory>
#include <vector>

#include "formats/format.h"

namespace shardscope::dcp {

// What DCP cannot hold of a target, and why.
std::vector<LeftOut> cannotHoldInDcp(const Catalog& target, const WriteOptions& options);
// Whether `.metadata` states the path of each name in the nested state dict (planner_data), or that names do
// not nest.
enum class NamePaths : uint8_t { written, none };
// One file for each rank; each chunk is its own torch.save archive. The last file is `.metadata`. `target`
// outlives the layout. Errors: limit, impossible.
Result<std::unique_ptr<TargetLayout>> layoutDcp(const Catalog& target, NamePaths paths = NamePaths::written);
// The same of a catalog that the layout keeps.
Result<std::unique_ptr<TargetLayout>> layoutDcp(std::shared_ptr<const Catalog> target);

}  // namespace shardscope::dcp

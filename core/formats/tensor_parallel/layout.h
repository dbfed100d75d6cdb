// Lays out files of tensor-parallel ranks: those of vLLM's sharded_state and of Meta's Llama. Private to this
// format.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/format.h"

namespace shardscope::tensor_parallel {

// Implement the functions of Format with these names. Each rank holds its shard of each tensor; a fused
// projection is one box for each of its parts. A tensor whose name says nothing is whole on each rank, and
// layOut() refuses it.
Result<Catalog> place(const Catalog& target, const std::optional<Mesh>& asked, const Catalog& source,
                      const WriteOptions& options);
std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions& options);
std::vector<TargetCopy> copies(const Catalog& target, const WriteOptions& options);
Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options);

}  // namespace shardscope::tensor_parallel

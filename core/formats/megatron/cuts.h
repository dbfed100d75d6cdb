// Infers from the chunks of a torch_dist checkpoint's weights which dimensions are layers and experts. Also
// infers the parallel sizes where the arguments do not state them. Private to this format.
#pragma once

#include <optional>
#include <string_view>

#include "formats/megatron/run_state.h"
#include "model/catalog.h"

namespace shardscope::megatron {

// The dimensions that a stored tensor has before those of the parameter, by its key. Source:
// transformer_block.py and moe/experts.py (sharded_state_dict) of megatron-core 0.16.
struct LeadingDims {
    bool layers = false;   // dimension 0 is the layer
    bool experts = false;  // the next dimension is the expert
    int64_t layer = -1;    // the layer that the key names, if not `layers`; -1 = none
    size_t count() const { return size_t{layers} + size_t{experts}; }
};
LeadingDims leadingDimsOf(std::string_view key);

// The sizes of tensor and pipeline parallelism. Assumes that the main replicas of each stage wrote their
// files. nullopt if the chunks contradict each other or no tensor is sharded.
std::optional<ParallelSizes> sizesOfCuts(const Catalog& stored);
// Sets `ep` if experts are spread over ranks that are otherwise data parallel.
void findExpertRanks(const Catalog& stored, ParallelSizes& sizes);

}  // namespace shardscope::megatron

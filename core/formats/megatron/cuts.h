// What the cuts of a torch_dist checkpoint's weights say: which dimensions stand for layers and experts, and,
// where the arguments do not say it, the sizes of the parallel groups. Private to this format.
#pragma once

#include <optional>
#include <string_view>

#include "formats/megatron/run_state.h"
#include "model/catalog.h"

namespace shardscope::megatron {

// The dimensions in front of those of a parameter, by its key. Source: transformer_block.py and
// moe/experts.py (sharded_state_dict) of megatron-core 0.16.
struct LeadingDims {
    bool layers = false;   // dimension 0 is the layer
    bool experts = false;  // the next one is the expert
    int64_t layer = -1;    // else the layer that the key names; -1 = none
    size_t count() const { return size_t{layers} + size_t{experts}; }
};
LeadingDims leadingDimsOf(std::string_view key);

// The sizes of tensor and pipeline parallelism, where each stage's main replicas have written their files;
// nullopt where the cuts contradict each other or nothing is cut.
std::optional<ParallelSizes> sizesOfCuts(const Catalog& stored);
// Sets `ep` where experts are on several ranks that are data parallel otherwise.
void findExpertRanks(const Catalog& stored, ParallelSizes& sizes);

}  // namespace shardscope::megatron

// The optimizer's state of `dp_reshardable` checkpoints: buckets of one dimension, of which the checkpoint
// does not say which parameters they hold. Private to this format.
//
// Source: megatron/core/optimizer/distrib_optimizer.py (sharded_param_state_dp_reshardable) and
// optimizer/__init__.py (dp_group_idx) of megatron-core 0.16.
#pragma once

#include <string>
#include <vector>

#include "formats/format.h"
#include "formats/megatron/run_state.h"

namespace shardscope::megatron {

// A part of a chunk of a bucket, and where it is in a parameter.
struct BucketPart {
    ChunkId chunk = kNone;  // of the stored catalog
    int64_t first = 0;      // element of it
    Dims offsets, lengths;  // the box of the parameter
    FlatRange flat;         // in it
};
struct BucketState {
    std::string name;  // "optimizer.state.exp_avg.decoder.final_layernorm.weight"
    DType dtype = DType::float32;
    Dims shape;
    std::vector<BucketPart> parts;
};
struct BucketStates {
    size_t buckets = 0;          // tensors that are buckets
    std::vector<bool> isBucket;  // of the stored tensors
    std::vector<BucketState> states;
    std::string whyNot;  // why they could not be resolved; then there are no states
};
// Only counts the buckets.
BucketStates findBuckets(const Catalog& stored);
// Finds the parameters by the order of the model's, and proves it by the boundaries of the stored chunks and
// by the values of masters. `stored` gives the model's tensors, too. Errors: cancelled, io.
Result<BucketStates> resolveBuckets(const Reader& stored, const std::optional<ParallelSizes>& sizes);

}  // namespace shardscope::megatron

// Resolves the optimizer buckets of `dp_reshardable` checkpoints to states of parameters. The checkpoint does
// not state which parameters a bucket holds. Private to this format.
//
// Source: megatron/core/optimizer/distrib_optimizer.py (sharded_param_state_dp_reshardable) and
// optimizer/__init__.py (dp_group_idx) of megatron-core 0.16.
#pragma once

#include <string>
#include <vector>

#include "formats/format.h"
#include "formats/megatron/run_state.h"

namespace shardscope::megatron {

// A range of a bucket's chunk, and its region in a parameter.
struct BucketPart {
    ChunkId chunk = kNone;  // in the stored catalog
    int64_t first = 0;      // first element in the chunk
    Dims offsets, lengths;  // box in the parameter
    FlatRange flat;         // range of that box
};
struct BucketState {
    std::string name;  // "optimizer.state.exp_avg.decoder.final_layernorm.weight"
    DType dtype = DType::float32;
    Dims shape;
    std::vector<BucketPart> parts;
};
struct BucketStates {
    size_t buckets = 0;          // number of stored tensors that are buckets
    std::vector<bool> isBucket;  // by TensorId of the stored catalog
    std::vector<BucketState> states;
    std::string whyNot;  // why the buckets could not be resolved; then `states` is empty
};
// Finds and counts the buckets; `states` stays empty.
BucketStates findBuckets(const Catalog& stored);
// Places parameters in buckets by their order in the model. Proves the result by the boundaries of the stored
// chunks and the values of master weights. `stored` also holds the model's tensors. Errors: cancelled, io.
Result<BucketStates> resolveBuckets(const Reader& stored, const std::optional<ParallelSizes>& sizes);

}  // namespace shardscope::megatron

// What a torch_dist directory holds of a target: ShardedTensors, ShardedObjects and common.pt. Private to
// this format.
//
// Source: megatron/core/dist_checkpointing (serialization.py, mapping.py, strategies/{common,torch}.py) of
// megatron-core 0.16; megatron/training/checkpointing.py (load_checkpoint, check_checkpoint_args) for what a
// run looks for in common.pt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "formats/format.h"

namespace shardscope::megatron {

struct Contents {
    struct Entry {
        Path path;  // in common.pt
        Value value;
    };
    struct ShardedValue {
        std::string name;
        Value value;  // a list of the one object, as the blob holds it
    };
    std::vector<bool> inCommon;  // which tensors of the target are in common.pt
    std::vector<Entry> common;
    std::vector<ShardedValue> sharded;
    std::vector<LeftOut> changed;
    std::optional<int64_t> iteration;  // nullopt where the target does not say it
};
// Errors: impossible for what Megatron-Core could not load.
Result<Contents> contentsOf(const Catalog& target);

// As Format::cannotHold(). Every name is one of the target.
std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions& options);

}  // namespace shardscope::megatron

// Sorts the entries of a target into ShardedTensors, ShardedObjects and common.pt of a torch_dist directory
// that megatron-core 0.16 loads, and lays it out. Private to this format.
//
// Source: megatron/core/dist_checkpointing (core.py, serialization.py, mapping.py,
// strategies/{common,torch}.py) of megatron-core 0.16; megatron/training/checkpointing.py (load_checkpoint,
// check_checkpoint_args) for what a run reads from common.pt.
#pragma once

#include <cstdint>
#include <memory>
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
        Value value;  // a list with the one object, as stored
    };
    std::vector<bool> inCommon;  // by TensorId: the tensor belongs to common.pt
    std::vector<Entry> common;
    std::vector<ShardedValue> sharded;
    std::vector<LeftOut> changed;
    std::optional<int64_t> iteration;  // nullopt if the target does not state it
};
// Errors: impossible for entries that Megatron-Core cannot load.
Result<Contents> contentsOf(const Catalog& target);

// As Format::cannotHold(). All names are names of the target.
std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions& options);

inline constexpr const char* kRunVariant = "run";

// Lays out the checkpoint directory; with variant `run`, the directory of a run with one iteration. `target`
// must outlive the layout. Errors: limit, impossible.
Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options);

}  // namespace shardscope::megatron

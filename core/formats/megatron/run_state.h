// What a checkpoint says of its training run: the arguments of Megatron's training, and the mesh that follows
// from them. Private to this format.
//
// Source: megatron/training/checkpointing.py (generate_state_dict, get_rng_state) and
// megatron/core/parallel_state.py (initialize_model_parallel: the order tp-cp-ep-dp-pp) of Megatron-LM.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "formats/format.h"
#include "model/mesh.h"
#include "model/value.h"

namespace shardscope::megatron {

// The `args` of a run: an argparse.Namespace, or a dictionary.
class Arguments {
  public:
    Arguments() = default;
    explicit Arguments(Value args);

    explicit operator bool() const { return mapping_ != kNoNode; }
    std::optional<int64_t> integer(std::string_view name) const;
    bool isTrue(std::string_view name) const;
    bool has(std::string_view name) const { return node(name) != kNoNode; }

  private:
    NodeId node(std::string_view name) const;
    Value args_;
    NodeId mapping_ = kNoNode;
};

// The value of a key of a mapping; empty where there is none.
Value entryOf(const Value& mapping, std::string_view key);

// Sizes of the parallel groups; rank = ((pp * dp + d) * cp + c) * tp + t.
struct ParallelSizes {
    uint32_t tp = 1, pp = 1, cp = 1, dp = 1, ep = 1;
    uint32_t virtualStages = 1;
    std::string evidence;        // "the args in common.pt state"
    bool inferred = false;       // from how tensors are cut
    std::string expertEvidence;  // where that of `ep` is another
    uint32_t ranks() const { return tp * pp * cp * dp; }
    struct At {
        uint32_t pp = 0, dp = 0, tp = 0;
    };
    At at(uint32_t rank) const { return {rank / (tp * cp * dp), rank / (tp * cp) % dp, rank % tp}; }
    Mesh mesh() const;
};
// nullopt where the arguments do not say it, or not for one number of ranks.
std::optional<ParallelSizes> sizesOf(const Arguments& args, std::string_view file);

// "rng_state/shard_0.1_2.2": the object at [0, 1] of a grid [2, 2].
struct ShardedName {
    std::string_view key;
    Dims offsets, grid;
};
// Names of old writers lack the last component of the grid: it is one there.
std::optional<ShardedName> parseShardedName(std::string_view name);

}  // namespace shardscope::megatron

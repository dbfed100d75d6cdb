// Reads the training arguments that a checkpoint stores, and derives the mesh from them; where they do not
// state it, from the chunks of a torch_dist checkpoint's weights. Private to this format.
//
// Source: megatron/training/checkpointing.py (generate_state_dict, get_rng_state) and
// megatron/core/parallel_state.py (initialize_model_parallel: the order tp-cp-ep-dp-pp) of Megatron-LM.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "formats/format.h"
#include "model/catalog.h"
#include "model/mesh.h"
#include "model/value_view.h"

namespace shardscope::megatron {

// The `args` of a run: an argparse.Namespace or a dict.
class Arguments {
  public:
    Arguments() = default;
    explicit Arguments(Value args) : args_(std::move(args)) {}

    explicit operator bool() const { return static_cast<bool>(ValueView(args_).mapping()); }
    std::optional<int64_t> integer(std::string_view name) const { return ValueView(args_)[name].integer(); }
    bool isTrue(std::string_view name) const { return ValueView(args_)[name].isTrue(); }
    bool has(std::string_view name) const { return static_cast<bool>(ValueView(args_)[name]); }

  private:
    Value args_;
};

// The value of a key in a mapping; an empty Value if the key is absent.
Value entryOf(const Value& mapping, std::string_view key);

// Sizes of the parallel groups; rank = ((pp * dp + d) * cp + c) * tp + t.
struct ParallelSizes {
    uint32_t tp = 1, pp = 1, cp = 1, dp = 1, ep = 1;
    uint32_t virtualStages = 1;
    std::string evidence;        // "the args in common.pt state"
    bool inferred = false;       // from the chunks of tensors
    std::string expertEvidence;  // evidence for `ep`, if it differs
    uint32_t ranks() const { return tp * pp * cp * dp; }
    struct At {
        uint32_t pp = 0, dp = 0, tp = 0;
    };
    At at(uint32_t rank) const { return {rank / (tp * cp * dp), rank / (tp * cp) % dp, rank % tp}; }
    Mesh mesh() const;
};
// nullopt if tp is not stated, a size is out of range, or world_size is not a multiple of tp * pp * cp.
std::optional<ParallelSizes> sizesOf(const Arguments& args, std::string_view file);

// The ShardedObject "rng_state/shard_0.1_2.2" is at [0, 1] in a grid [2, 2].
struct ShardedName {
    std::string_view key;
    Dims offsets, grid;
};
// Old writers omit the last component of the grid; it counts as 1.
std::optional<ShardedName> parseShardedName(std::string_view name);

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

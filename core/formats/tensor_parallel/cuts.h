// Finds how tensor-parallel ranks shard a parameter: by its name, the model's configuration, and the ranks'
// shapes and values. Private to this format.
//
// Source: vllm/model_executor/layers/{linear,vocab_parallel_embedding,fused_moe/layer}.py (column-parallel
// layers are sharded along dimension 0, row-parallel ones along dimension 1, fused ones part by part; key and
// value heads are repeated if there are fewer heads than ranks), tensorrt_llm/layers/{mlp,moe}.py,
// meta-llama/llama model.py (fairscale's layers), meta-llama/llama-models models/llama4/{moe,ffn,model}.py;
// tensorrt_llm/mapping.py (moe_ep_rank = tp_rank % moe_ep_size).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "formats/rank_cut.h"
#include "formats/tp_rule.h"
#include "model/model_sizes.h"
#include "model/region.h"

namespace shardscope::tensor_parallel {

// The cut of one rank's shard.
struct Cut : RankCut {
    int64_t whole = 0;  // length of the axis in the whole tensor
    // Where the experts along dimension 0 are split among ranks as well: how many there are, and the first
    // here.
    int64_t experts = 0, firstExpert = 0;
};

struct Shards {
    std::string_view name;
    std::vector<Dims> shapes;  // by rank; all have the same number of dimensions
    std::optional<bool> same;  // whether all ranks hold the same values
};

class Cuts {
  public:
    // `trusted`: the files certainly come from tensor-parallel ranks, so layer names alone decide.
    Cuts(ModelSizes sizes, std::vector<TpRule> stated, bool trusted)
        : sizes_(sizes), stated_(std::move(stated)), trusted_(trusted) {}
    // The cut of one rank's shard. Errors: unsupported if the cut cannot be found.
    Result<Cut> of(const Shards& shards, uint32_t rank) const;
    // The reverse: which part of a whole tensor a rank of `ranks` holds, by the tensor's name. `columns`: the
    // embedding is cut along its columns. Errors: unsupported if the name is not known, impossible if the
    // tensor does not divide.
    Result<RankCut> ofWhole(std::string_view name, DimSpan shape, uint32_t ranks, uint32_t rank,
                            bool columns) const;
    // Whether the ranks hold less of the embedding or of a feed-forward layer than the configuration states.
    bool lacksParts(const Shards& shards) const;

  private:
    enum class Kind : uint8_t { unknown, replicated, rows, columns, vocabulary, halves, heads, experts };
    struct Known {
        Kind kind = Kind::unknown;
        int axis = 0;
    };
    static Known known(std::string_view name, size_t dimensions);
    Known knownOfTensorRt(std::string_view name, size_t dimensions) const;
    bool lacksWidth(const Shards& shards, uint32_t halves) const;
    Result<Cut> cutAs(Known how, const Shards& shards, uint32_t rank) const;
    // How many groups of ranks split the experts of one tensor; 1 = each rank has its part of all.
    int64_t expertGroups(const Shards& shards) const;
    // Of a fused [q k v], by the heads of the configuration.
    Result<Cut> headsOf(int64_t ranks, uint32_t rank) const;
    Result<Cut> headsIn(const Shards& shards, uint32_t rank) const;

    ModelSizes sizes_;
    std::vector<TpRule> stated_;
    bool trusted_;
};

}  // namespace shardscope::tensor_parallel

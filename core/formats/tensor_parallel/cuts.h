// How tensor-parallel ranks cut a parameter, by its name, by the sizes that the model's configuration states
// and by what the ranks hold. Private to this format.
//
// Source: vllm/model_executor/layers/{linear,vocab_parallel_embedding}.py (column-parallel layers are cut
// along dimension 0, row-parallel ones along dimension 1, fused ones part by part, heads of keys and values
// are repeated where there are fewer than ranks), meta-llama/llama model.py (fairscale's layers).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/rank_cut.h"
#include "formats/tp_rule.h"
#include "model/region.h"

namespace shardscope::tensor_parallel {

// What config.json or params.json says of the model; 0 = nothing.
struct ModelSizes {
    int64_t hidden = 0, heads = 0, keyHeads = 0, headSize = 0, vocabulary = 0;
    int64_t ranks = 0, stages = 0;  // of tensor and pipeline parallelism, as TensorRT-LLM states them
};
ModelSizes readSizes(std::string_view json);

// Of the rank that was asked for.
struct Cut : RankCut {
    int64_t whole = 0;  // length of the axis
};

struct Shards {
    std::string_view name;
    std::vector<Dims> shapes;  // by rank; all have the same number of dimensions
    std::optional<bool> same;  // whether all ranks hold the same values
};

class Cuts {
  public:
    // `trusted`: the files are of tensor-parallel ranks for sure, so names of layers tell the cut.
    Cuts(ModelSizes sizes, std::vector<TpRule> stated, bool trusted)
        : sizes_(sizes), stated_(std::move(stated)), trusted_(trusted) {}
    // The cut of one rank's shard. Errors: unsupported for what is not known.
    Result<Cut> of(const Shards& shards, uint32_t rank) const;
    // Rows of the embedding that the configuration asks for and that these ranks do not have.
    bool lacksRows(const Shards& shards) const;

  private:
    enum class Kind : uint8_t { unknown, replicated, rows, columns, vocabulary, halves, heads };
    struct Known {
        Kind kind = Kind::unknown;
        int axis = 0;
    };
    static Known known(std::string_view name, size_t dimensions);
    Result<Cut> headsOf(const Shards& shards, uint32_t rank) const;

    ModelSizes sizes_;
    std::vector<TpRule> stated_;
    bool trusted_;
};

}  // namespace shardscope::tensor_parallel

// How tensor-parallel ranks shard the layers of a transformer, by the names that frameworks give them: the
// one table for reading files of such ranks, for writing them, and for rules that shard as frameworks do
// (plan/shard_preset.h).
//
// Source: vllm/model_executor/layers/{linear,vocab_parallel_embedding}.py and vllm/model_executor/models;
// tensorrt_llm/layers/{attention,mlp}.py; meta-llama/llama model.py; megatron/core/tensor_parallel/layers.py
// and megatron/core/transformer/{attention,mlp}.py; megatron/legacy/model/transformer.py.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace shardscope {

enum class TpCut : uint8_t {
    rows,        // weight and bias along dimension 0: frameworks call it column parallel
    vocabulary,  // likewise; the rows are those of the vocabulary
    halves,      // likewise, of a gate and an up projection in one, each by itself
    heads,       // likewise, of query, key and value in one, by heads
    columns,     // the weight along dimension 1, the bias whole: row parallel
};

// Who names a layer so. Bits.
enum TpNaming : uint8_t {
    kModelNaming = 1,     // Hugging Face, vLLM, TensorRT-LLM, Meta, torchtitan
    kMegatronNaming = 2,  // Megatron-LM; `halves` if the layer is gated, else `rows`
    kAnyNaming = kModelNaming | kMegatronNaming,
    kEngineNaming = 4,  // only in files of ranks: elsewhere such weights may be transposed
    kRankFileNaming = kModelNaming | kEngineNaming,
};

struct TpLayer {
    std::string_view module;  // the part of a parameter's name before "weight"
    TpCut cut = TpCut::rows;
    uint8_t naming = kModelNaming;
};
std::span<const TpLayer> tpLayers();

// Nothing for a module that the table lacks.
std::optional<TpCut> tpCut(std::string_view module, TpNaming naming);

}  // namespace shardscope

// Lays out files of tensor-parallel ranks: those of vLLM's sharded_state and of Meta's Llama, and what the
// programs that load them expect of a model, as far as it is certain. Private to this format.
//
// Source: vllm/model_executor/models/{llama,mistral,qwen2,qwen3}.py and layers/attention (names of the state
// dict, of which ShardedStateLoader needs each and takes no other), layers/vocab_parallel_embedding.py (rows
// in multiples of 64); meta-llama/llama and llama3, model.py and generation.py; meta-llama/llama-models,
// models/llama3/args.py (use_scaled_rope); transformers, models/llama/convert_llama_weights_to_hf.py.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/format.h"

namespace shardscope::tensor_parallel {

// Implement the functions of Format with these names. Each rank holds its shard of each tensor; a fused
// projection is one box for each of its parts. A tensor whose name says nothing is whole on each rank, and
// layOut() refuses it.
Result<Catalog> place(const Catalog& target, const std::optional<Mesh>& asked, const Catalog& source,
                      const WriteOptions& options);
std::vector<LeftOut> cannotHold(const Catalog& target, const WriteOptions& options);
std::vector<TargetCopy> copies(const Catalog& target, const WriteOptions& options);
Result<std::unique_ptr<TargetLayout>> layOut(const Catalog& target, const WriteOptions& options);

inline constexpr std::string_view kVllm = "vllm", kMeta = "meta", kMetaLlama2 = "meta-llama2";

// The tensors that the writer ("vLLM", "Meta") keeps for the model of its configuration; none where that is
// not known.
std::vector<std::string> namesNeeded(std::string_view writer, const std::string& config);

}  // namespace shardscope::tensor_parallel

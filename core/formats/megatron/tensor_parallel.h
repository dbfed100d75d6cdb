// How tensor-parallel ranks of Megatron cut a parameter, where the files do not say it. Private to this
// format.
//
// Source: megatron/core/tensor_parallel/layers.py, transformer/{attention,mlp,multi_latent_attention}.py,
// transformer/moe, ssm/mamba_mixer.py of megatron-core 0.16; the names before Megatron-Core
// (query_key_value, dense_h_to_4h) are those of Megatron-LM's megatron/model/transformer.py.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace shardscope::megatron {

enum class Cut : uint8_t {
    none,     // each rank holds the whole parameter
    rows,     // along dimension 0
    columns,  // along dimension 1
    gateUp,   // along dimension 0, in two halves: a rank holds its part of the gate, then that of the up
              // projection
};
// By the name of the parameter; nullopt where it is not known. `gated`: the first linear layer of an MLP
// holds gate and up projection.
std::optional<Cut> cutOf(std::string_view name, size_t dimensions, bool gated);
// The weight of the second linear layer of an MLP, by the name of a parameter of the first one; the name
// itself for any other.
std::string secondLayerOf(std::string_view name);

}  // namespace shardscope::megatron

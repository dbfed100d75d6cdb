// How Megatron's tensor-parallel ranks shard a parameter, by its name. For files that do not state it.
// Private to this format.
//
// Source: megatron/core/tensor_parallel/layers.py, transformer/{attention,mlp,multi_latent_attention}.py,
// transformer/moe, ssm/mamba_mixer.py of megatron-core 0.16; the names before Megatron-Core
// (query_key_value, dense_h_to_4h) are those of Megatron-LM's megatron/model/transformer.py; lora_* those of
// nemo/collections/nlp/modules/common/megatron/adapters/parallel_adapters.py of NeMo 1.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shardscope::megatron {

enum class Cut : uint8_t {
    none,     // each rank holds the whole parameter
    rows,     // along dimension 0
    columns,  // along dimension 1
    gateUp,   // along dimension 0 of two halves: a rank holds its part of the gate, then of the up projection
};
// How a parameter is sharded, and the parts of a rank's shard that are sharded separately.
struct LayerCut {
    Cut cut = Cut::none;
    std::vector<int64_t> parts;  // lengths along dimension 0; empty = one part
};
// Sizes on one rank of a layer with recurrent state: Mamba 2 (mamba_mixer.py), gated delta net
// (gated_delta_net.py).
struct StateLayer {
    int64_t projection = 0;   // rows of in_proj
    int64_t convolution = 0;  // rows of conv1d
    int64_t inner = 0;        // columns of out_proj
    int64_t heads = 0;        // elements of A_log
    bool skip = false;        // the layer has a parameter D
};
// The cut of a parameter of such a layer, by its local name ("in_proj.weight"); nullopt if the sizes fit no
// known layer.
std::optional<LayerCut> stateLayerCut(std::string_view name, const StateLayer& layer);

// The cut by the parameter's name; nullopt if the name is unknown. `gated`: the first linear layer of an MLP
// holds gate and up projection.
std::optional<Cut> cutOf(std::string_view name, size_t dimensions, bool gated);
// Maps a parameter of an MLP's first linear layer to the weight of the second one. Returns any other name
// unchanged.
std::string secondLayerOf(std::string_view name);

}  // namespace shardscope::megatron

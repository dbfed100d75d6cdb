#include "model/tp_layers.h"

#include <algorithm>

namespace shardscope {

namespace {

constexpr TpLayer kTpLayers[] = {
    {"embed_tokens", TpCut::vocabulary},
    {"tok_embeddings", TpCut::vocabulary},
    {"vocab_embedding", TpCut::vocabulary},
    {"embed", TpCut::vocabulary},
    {"lm_head", TpCut::vocabulary},
    {"output", TpCut::vocabulary},
    {"head", TpCut::vocabulary},
    {"word_embeddings", TpCut::vocabulary, kMegatronNaming | kEngineNaming},
    {"output_layer", TpCut::vocabulary, kMegatronNaming},

    {"q_proj", TpCut::rows},
    {"k_proj", TpCut::rows},
    {"v_proj", TpCut::rows},
    {"gate_proj", TpCut::rows},
    {"up_proj", TpCut::rows},
    {"wq", TpCut::rows},
    {"wk", TpCut::rows},
    {"wv", TpCut::rows},
    {"w1", TpCut::rows},
    {"w3", TpCut::rows},
    {"fc", TpCut::rows},
    {"fc1", TpCut::rows},
    {"q_b_proj", TpCut::rows},
    {"kv_b_proj", TpCut::rows},
    {"wq_b", TpCut::rows},
    {"wkv_b", TpCut::rows},
    {"linear_qkv", TpCut::rows, kMegatronNaming},
    {"linear_q", TpCut::rows, kMegatronNaming},
    {"linear_kv", TpCut::rows, kMegatronNaming},
    {"linear_q_proj", TpCut::rows, kMegatronNaming},
    {"linear_q_up_proj", TpCut::rows, kMegatronNaming},
    {"linear_kv_up_proj", TpCut::rows, kMegatronNaming},
    {"eh_proj", TpCut::rows, kMegatronNaming},
    {"query_key_value", TpCut::rows, kMegatronNaming},
    {"query", TpCut::rows, kMegatronNaming},
    {"key_value", TpCut::rows, kMegatronNaming},
    {"dense_h_to_4h_2", TpCut::rows, kMegatronNaming},
    {"wte", TpCut::vocabulary, kEngineNaming},
    {"embed_in", TpCut::vocabulary, kEngineNaming},
    {"embed_out", TpCut::vocabulary, kEngineNaming},
    {"c_fc", TpCut::rows, kEngineNaming},
    {"fc_in", TpCut::rows, kEngineNaming},
    {"w_in_shared_FD", TpCut::rows, kEngineNaming},
    {"w_swiglu_FD", TpCut::rows, kEngineNaming},

    {"gate_up_proj", TpCut::halves},
    {"linear_fc1", TpCut::halves, kMegatronNaming},
    {"dense_h_to_4h", TpCut::halves, kMegatronNaming},
    {"dense_h_to_4h", TpCut::rows, kEngineNaming},
    {"fused_fc", TpCut::halves, kEngineNaming},

    {"qkv_proj", TpCut::heads},
    {"qkv", TpCut::heads},
    {"wqkv", TpCut::heads, kEngineNaming},
    {"Wqkv", TpCut::heads, kEngineNaming},
    {"c_attn", TpCut::heads, kEngineNaming},
    {"query_key_value", TpCut::heads, kEngineNaming},

    {"o_proj", TpCut::columns},
    {"out_proj", TpCut::columns},
    {"down_proj", TpCut::columns},
    {"wo", TpCut::columns},
    {"w2", TpCut::columns},
    {"proj", TpCut::columns},
    {"fc2", TpCut::columns},
    {"dense", TpCut::columns, kAnyNaming},
    {"linear_proj", TpCut::columns, kMegatronNaming},
    {"linear_fc2", TpCut::columns, kMegatronNaming},
    {"dense_4h_to_h", TpCut::columns, kMegatronNaming | kEngineNaming},
    {"c_proj", TpCut::columns, kEngineNaming},
    {"fc_out", TpCut::columns, kEngineNaming},
    {"w_out_shared_DF", TpCut::columns, kEngineNaming},
};

}  // namespace

std::span<const TpLayer> tpLayers() {
    return kTpLayers;
}

std::optional<TpCut> tpCut(std::string_view module, TpNaming naming) {
    const auto* found = std::ranges::find_if(
        kTpLayers, [&](const TpLayer& kind) { return kind.module == module && kind.naming & naming; });
    if (found == std::end(kTpLayers)) return std::nullopt;
    return found->cut;
}

}  // namespace shardscope

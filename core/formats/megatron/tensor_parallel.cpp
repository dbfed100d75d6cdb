#include "formats/megatron/tensor_parallel.h"

#include <utility>

#include "base/names.h"
#include "model/tp_layers.h"

namespace shardscope::megatron {

namespace {

// NeMo's LoRA adapters: the first of the two matrices is cut as the input of the layer is, else along its
// rank; the second one as the output.
std::optional<Cut> loraCutOf(std::string_view name, std::string_view module, bool gated) {
    if (name.find(".lora_") == name.npos) return std::nullopt;
    const bool outer = name.find(".lora_dense_attention_adapter.") != name.npos ||
                       name.find(".lora_4htoh_adapter.") != name.npos;
    if (module == "linear_in") return outer ? Cut::columns : Cut::rows;
    if (module != "linear_out") return std::nullopt;
    return gated && name.find(".lora_hto4h_adapter.") != name.npos ? Cut::gateUp : Cut::rows;
}

}  // namespace

std::optional<Cut> cutOf(std::string_view name, size_t dimensions, bool gated) {
    std::string_view rest = name;
    std::string_view leaf = takeLastPart(rest);
    const std::string_view module = takeLastPart(rest);
    // The number of a local expert, as grouped linear layers of Transformer Engine have it.
    while (!leaf.empty() && leaf.back() >= '0' && leaf.back() <= '9')
        leaf.remove_suffix(1);
    if (leaf == "softmax_offset") return Cut::rows;  // of attention heads
    if (leaf == "layer_norm_weight" || leaf == "layer_norm_bias" || dimensions == 0) return Cut::none;
    if (module.find("norm") != module.npos) return Cut::none;
    // Heads of BERT and T5: only the bias over the vocabulary is cut.
    if (name.find("lm_head.") != name.npos)
        return module == "lm_head" && leaf == "bias" ? Cut::rows : Cut::none;
    if (name.find("pooler.") != name.npos || name.find("binary_head.") != name.npos) return Cut::none;
    if (isAmong(module, {"position_embeddings", "tokentype_embeddings", "router", "linear_q_down_proj",
                         "linear_kv_down_proj", "shared_experts"}))
        return Cut::none;
    if (const auto cut = loraCutOf(name, module, gated)) return cut;
    const auto cut = tpCut(module, kMegatronNaming);
    if (!cut) return std::nullopt;
    if (*cut == TpCut::halves) return gated ? Cut::gateUp : Cut::rows;
    if (*cut != TpCut::columns) return Cut::rows;
    return leaf == "bias" || dimensions < 2 ? Cut::none : Cut::columns;
}

std::optional<LayerCut> stateLayerCut(std::string_view name, const StateLayer& layer) {
    const int64_t rest = layer.convolution - layer.inner, third = rest / 2;
    if (layer.inner < 1 || layer.heads < 1 || rest < 2 || rest % 2 != 0) return std::nullopt;
    const bool mamba = layer.skip && layer.projection == layer.convolution + layer.inner + layer.heads;
    const bool delta = !layer.skip && layer.projection == layer.convolution + layer.inner + 2 * layer.heads;
    if (!mamba && !delta) return std::nullopt;
    if (name == "in_proj.weight" || name == "in_proj.bias") {
        // z, x, B, C and dt; query, key, value, z, beta and alpha.
        if (mamba) return LayerCut{Cut::rows, {layer.inner, layer.inner, third, third, layer.heads}};
        return LayerCut{Cut::rows, {third, third, layer.inner, layer.inner, layer.heads, layer.heads}};
    }
    if (name == "conv1d.weight" || name == "conv1d.bias") {
        if (mamba) return LayerCut{Cut::rows, {layer.inner, third, third}};
        return LayerCut{Cut::rows, {third, third, layer.inner}};
    }
    if (name == "out_proj.weight") return LayerCut{Cut::columns, {}};
    if (isAmong(name, {"A_log", "D", "dt_bias"})) return LayerCut{Cut::rows, {}};
    if (name == "norm.weight" && mamba) return LayerCut{Cut::rows, {}};
    if (isAmong(name,
                {"out_proj.bias", "out_norm.weight", "in_proj.layer_norm_weight", "in_proj.layer_norm_bias"}))
        return LayerCut{Cut::none, {}};
    return std::nullopt;
}

std::string secondLayerOf(std::string_view name) {
    std::string second(name);
    for (const auto& [one, two] : {std::pair<std::string_view, std::string_view>{"linear_fc1", "linear_fc2"},
                                   {"dense_h_to_4h", "dense_4h_to_h"},
                                   {"lora_hto4h_adapter.linear_out", "lora_4htoh_adapter.linear_in"}}) {
        if (const size_t at = second.find(one); at != second.npos) second.replace(at, one.size(), two);
    }
    if (second != name && second.ends_with(".bias")) second.replace(second.size() - 4, 4, "weight");
    return second;
}

}  // namespace shardscope::megatron

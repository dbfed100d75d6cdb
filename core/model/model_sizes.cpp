#include "model/model_sizes.h"

#include <initializer_list>

namespace shardscope {

namespace {

constexpr int64_t kMostStated = 65'536;  // ranks
constexpr int64_t kMostSize = (int64_t{1} << 40) - 1;

}  // namespace

std::optional<ModelSizes> modelSizesOf(ValueView config) {
    if (!config.isMapping()) return std::nullopt;
    ModelSizes sizes;
    const auto number = [](ValueView in, std::initializer_list<const char*> names, int64_t most) -> int64_t {
        for (const char* name : names) {
            const int64_t value = in[name].integer().value_or(0);
            if (value > 0 && value <= most) return value;
        }
        return 0;
    };
    if (const ValueView mapping = config["mapping"]) {
        sizes.ranks = number(mapping, {"tp_size"}, kMostStated);
        sizes.expertRanks = number(mapping, {"moe_ep_size"}, kMostStated);
        sizes.stages = number(mapping, {"pp_size"}, kMostStated);
    }
    if (const ValueView inner = config["text_config"]; inner.isMapping()) config = inner;
    for (const ValueView in : {config, config["moe"], config["moe_args"], config["ffn_config"]}) {
        if (sizes.experts == 0 && in.isMapping())
            sizes.experts = number(
                in, {"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"}, kMostStated);
    }
    const auto size = [&](std::initializer_list<const char*> names) {
        return number(config, names, kMostSize);
    };
    sizes.hidden = size({"hidden_size", "dim", "n_embd", "d_model"});
    sizes.intermediate = size({"intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim"});
    sizes.expert = size({"moe_intermediate_size"});
    sizes.vocabulary = size({"vocab_size", "padded_vocab_size"});
    sizes.positions = size({"max_position_embeddings", "n_positions"});
    sizes.heads = size({"num_attention_heads", "n_heads", "n_head"});
    sizes.keyHeads = size({"num_key_value_heads", "n_kv_heads", "multi_query_group_num"});
    for (const char* width : {"intermediate_size", "moe_intermediate_size", "inter_dim", "moe_inter_dim",
                              "shared_expert_intermediate_size"})
        if (const int64_t stated = size({width})) sizes.widths.push_back(stated);
    sizes.headSize = size({"head_dim", "head_size", "kv_channels"});
    if (sizes.keyHeads == 0) sizes.keyHeads = sizes.heads;
    if (sizes.headSize == 0 && sizes.heads > 0 && sizes.hidden % sizes.heads == 0)
        sizes.headSize = sizes.hidden / sizes.heads;
    return sizes;
}

}  // namespace shardscope

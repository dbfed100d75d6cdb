"""Recipes between Hugging Face and Megatron, proved by running both models: transformers builds a tiny model of each family, its
checkpoint becomes one of Megatron core, a real GPTModel on a CPU loads it strictly and gives the same logits. What the GPTModel then
saves with dist_checkpointing (layers and experts in one tensor, a padded vocabulary) becomes the same Hugging Face tensors again, bit
for bit. Recipes for torchtitan are only taken there and back."""
import argparse
import contextlib
import copy
import hashlib
import logging
import math
import multiprocessing
import os
import sys
import tempfile
import time
import traceback

from peercommon import mapped

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import transformers  # noqa: E402
from transformers import modeling_utils  # noqa: E402, F401  torch.cuda as it is
from ranklib import cuda_stubs  # noqa: E402

cuda_stubs()
logging.disable(logging.WARNING)
from safetensors.torch import load_file, save_file  # noqa: E402
from megatron.core import dist_checkpointing, parallel_state  # noqa: E402
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec, get_gpt_layer_local_spec, get_gpt_mtp_block_spec  # noqa: E402
from megatron.core.dist_checkpointing.strategies import filesystem_async  # noqa: E402
from megatron.core.tensor_parallel import get_cuda_rng_tracker  # noqa: E402
from megatron.core.ssm import gated_delta_net  # noqa: E402
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear  # noqa: E402
from megatron.core.transformer import TransformerConfig  # noqa: E402
from megatron.core.fusions.fused_bias_geglu import quick_gelu  # noqa: E402
from megatron.core.transformer import multi_latent_attention  # noqa: E402
from megatron.core.transformer.moe import moe_utils  # noqa: E402
from megatron.core.transformer.spec_utils import ModuleSpec  # noqa: E402
from megatron.core.transformer.torch_norm import WrappedTorchNorm  # noqa: E402
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules  # noqa: E402
from megatron.core.transformer.transformer_config import MLATransformerConfig  # noqa: E402

LAYERS, HIDDEN, HEADS, GROUPS, HEAD_DIM, FFN, VOCAB, PADDED, LENGTH, EXPERTS = 3, 32, 4, 2, 8, 40, 61, 64, 9, 4
COMMON = dict(num_hidden_layers=LAYERS, hidden_size=HIDDEN, num_attention_heads=HEADS, num_key_value_heads=GROUPS, intermediate_size=FFN,
              vocab_size=VOCAB, max_position_embeddings=64, rms_norm_eps=1e-6, tie_word_embeddings=False, pad_token_id=None, bos_token_id=1,
              eos_token_id=2, attn_implementation="eager")
TITAN = {"llama": "llama", "qwen3": "qwen3", "qwen3-moe": "qwen3", "deepseek-v3": "deepseek-v3", "gpt-oss": "gpt-oss"}
# What a layer that predicts further tokens has beyond a layer, and where its names stand. Embedding and head are those of the model.
DEEPSEEK = dict(layer="model.layers.%d." % LAYERS, norms=("enorm", "hnorm", "shared_head.norm"), projection="eh_proj",
                copies={"embed_tokens": "model.embed_tokens", "shared_head.head": "lm_head"})
QWEN = dict(layer="mtp.layers.0.", beside="mtp.", norms=("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"), projection="fc", copies={})
MIMO = dict(layer="model.mtp_layers.0.", norms=("token_layernorm", "hidden_layernorm", "final_layernorm"), projection="input_proj", copies={},
            hidden_first=True)
SILU = torch.nn.functional.silu


def gelu_tanh(x):
    return torch.nn.functional.gelu(x, approximate="tanh")


class WithNorm(RowParallelLinear):
    """A projection with a norm of its result, as Megatron-Bridge builds Gemma 2 and 3."""

    def __init__(self, input_size, output_size, *, config, **more):
        super().__init__(input_size, output_size, config=config, **more)
        self.post_layernorm = WrappedTorchNorm(config, output_size, eps=config.layernorm_epsilon)
        one_more(self.post_layernorm)

    def forward(self, x):
        out, bias = super().forward(x)
        return self.post_layernorm(out), bias


def one_more(norm):
    """A norm whose weight is kept less one; the local norms of Megatron core lack that."""
    def forward(x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + norm.eps) * (1.0 + norm.weight.float())).type_as(x)
    norm.forward = forward


class Attention(torch.nn.Module):
    """Attention with another scale and scores that tanh may bound, as in Gemma 2; without its window, which is wider than what is tried."""
    scale, softcap = 1.0, 50.0

    def __init__(self, config, **unused):
        super().__init__()
        self.groups = config.num_attention_heads // config.num_query_groups

    def forward(self, query, key, value, attention_mask, **unused):
        query, key, value = (t.permute(1, 2, 0, 3) for t in (query, key.repeat_interleave(self.groups, 2), value.repeat_interleave(self.groups, 2)))
        scores = query @ key.transpose(-1, -2) * self.scale
        if self.softcap:
            scores = self.softcap * torch.tanh(scores / self.softcap)
        out = scores.masked_fill(attention_mask, float("-inf")).softmax(-1) @ value
        return out.permute(2, 0, 1, 3).flatten(2)


def gemma(spec):
    parts = spec.submodules
    parts.self_attention.submodules.core_attention = Attention
    parts.self_attention.submodules.linear_proj = WithNorm
    parts.mlp.submodules.linear_fc2 = WithNorm


def latent(spec):
    """The local attention of Megatron core has one size for keys and values."""
    for layer in spec.layer_specs:
        layer.submodules.self_attention.submodules.core_attention = Attention


def with_delta_net(config):
    """A layer of linear attention before each of gated attention; without the kernels that it is made for."""
    gated_delta_net.HAVE_FLA, gated_delta_net.chunk_gated_delta_rule = True, gated_delta_net.torch_chunk_gated_delta_rule
    gated_delta_net.l2norm = lambda x: x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6)
    spec = get_gpt_layer_local_spec(num_experts=EXPERTS, moe_grouped_gemm=False, qk_layernorm=True, normalization="RMSNorm")
    linear = copy.deepcopy(spec)
    parts = gated_delta_net.GatedDeltaNetSubmodules(in_proj=ColumnParallelLinear, out_norm=WrappedTorchNorm, out_proj=RowParallelLinear)
    linear.submodules.self_attention = ModuleSpec(module=gated_delta_net.GatedDeltaNet, submodules=parts)
    return TransformerBlockSubmodules(layer_specs=[linear, linear, spec], layer_norm=WrappedTorchNorm)


def zero_centered(model):
    for name, module in model.named_modules():
        if name.endswith(("norm", "norm.weight")) and hasattr(module, "weight"):
            one_more(module)


def as_gemma(model, softcap):
    for name, module in model.named_modules():
        if name.endswith("layernorm") and "post_layernorm" not in name and hasattr(module, "weight"):
            one_more(module)
    model.embedding.register_forward_hook(lambda m, i, out: out * HIDDEN ** 0.5)
    if softcap:
        model.output_layer.register_forward_hook(lambda m, i, out: (softcap * torch.tanh(out[0] / softcap), out[1]))


def moe(**more):
    return dict(num_moe_experts=EXPERTS, moe_router_topk=2, moe_ffn_hidden_size=FFN, moe_router_load_balancing_type="none",
                moe_token_dispatcher_type="alltoall", moe_grouped_gemm=False, **more)


def families():
    """name -> (Hugging Face model, changes of Megatron's configuration, more)"""
    t = transformers
    experts = dict(num_experts=EXPERTS, num_experts_per_tok=2, moe_intermediate_size=FFN, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[])
    yield "llama", t.LlamaForCausalLM, t.LlamaConfig(**COMMON, rope_theta=500000.0), {}, {}
    yield "qwen2", t.Qwen2ForCausalLM, t.Qwen2Config(**dict(COMMON, tie_word_embeddings=True)), dict(add_qkv_bias=True), {}
    yield "mimo", t.Qwen2ForCausalLM, t.Qwen2Config(**COMMON), dict(add_qkv_bias=True, mtp_num_layers=1), dict(mtp=MIMO)
    yield "qwen3", t.Qwen3ForCausalLM, t.Qwen3Config(**COMMON, head_dim=16), dict(kv_channels=16, qk_layernorm=True), {}
    # Models whose layers are those of Llama, by its recipe.
    yield "mistral", t.MistralForCausalLM, t.MistralConfig(**COMMON, head_dim=16, sliding_window=None), dict(kv_channels=16), dict(recipe="llama")
    yield ("gemma", t.GemmaForCausalLM, t.GemmaConfig(**dict(COMMON, tie_word_embeddings=True), head_dim=16, hidden_activation="gelu_pytorch_tanh"),
           dict(kv_channels=16, activation_func=gelu_tanh), dict(recipe="llama", softcap=0.0))
    yield "mixtral", t.MixtralForCausalLM, t.MixtralConfig(**COMMON, num_local_experts=EXPERTS, num_experts_per_tok=2), moe(), {}
    yield "qwen3-moe", t.Qwen3MoeForCausalLM, t.Qwen3MoeConfig(**COMMON, **experts, head_dim=HEAD_DIM), moe(qk_layernorm=True), {}
    yield ("qwen2-moe", t.Qwen2MoeForCausalLM, t.Qwen2MoeConfig(**COMMON, **experts, qkv_bias=True, shared_expert_intermediate_size=2 * FFN),
           moe(add_qkv_bias=True, moe_shared_expert_intermediate_size=2 * FFN, moe_shared_expert_gate=True), {})
    yield ("gemma2", t.Gemma2ForCausalLM,
           t.Gemma2Config(**dict(COMMON, tie_word_embeddings=True), head_dim=HEAD_DIM, query_pre_attn_scalar=16, hidden_activation="gelu_pytorch_tanh"),
           dict(activation_func=gelu_tanh), dict(spec=gemma, softcap=30.0, scale=16 ** -0.5, attention_softcap=50.0))
    yield ("deepseek-v3", t.DeepseekV3ForCausalLM,
           t.DeepseekV3Config(**dict(COMMON, num_key_value_heads=HEADS), q_lora_rank=12, kv_lora_rank=10, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8,
                              n_routed_experts=EXPERTS, num_experts_per_tok=2, moe_intermediate_size=FFN, n_shared_experts=1, first_k_dense_replace=1,
                              n_group=2, topk_group=1, routed_scaling_factor=2.5, norm_topk_prob=True),
           moe(multi_latent_attention=True, q_lora_rank=12, kv_lora_rank=10, qk_pos_emb_head_dim=8, qk_head_dim=8, v_head_dim=8, qk_layernorm=True, num_query_groups=HEADS,
               rope_type="rope", rotary_scaling_factor=1.0, moe_layer_freq=[0, 1, 1], moe_shared_expert_intermediate_size=FFN, moe_router_score_function="sigmoid",
               moe_router_enable_expert_bias=True, moe_router_num_groups=2, moe_router_group_topk=1, moe_router_topk_scaling_factor=2.5, moe_router_dtype="fp32", mtp_num_layers=1),
           dict(stacked=False, spec=latent, scale=16 ** -0.5, attention_softcap=0.0, mtp=DEEPSEEK))
    # DeepSeek's layers without groups of experts, and with longer contexts by YaRN.
    yarn = dict(factor=4.0, beta_fast=1.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0)
    stretched = (0.1 * math.log(yarn["factor"]) + 1) ** 2
    yield ("kimi-k2", t.DeepseekV3ForCausalLM,
           t.DeepseekV3Config(**dict(COMMON, num_key_value_heads=HEADS), q_lora_rank=14, kv_lora_rank=6, qk_rope_head_dim=4, qk_nope_head_dim=12, v_head_dim=10,
                              n_routed_experts=EXPERTS, num_experts_per_tok=2, moe_intermediate_size=FFN // 2, n_shared_experts=1, first_k_dense_replace=1,
                              n_group=1, topk_group=1, routed_scaling_factor=2.827, norm_topk_prob=True,
                              rope_parameters=dict(yarn, rope_type="yarn", rope_theta=50000.0, original_max_position_embeddings=16)),
           dict(moe(multi_latent_attention=True, q_lora_rank=14, kv_lora_rank=6, qk_pos_emb_head_dim=4, qk_head_dim=12, v_head_dim=10, qk_layernorm=True, num_query_groups=HEADS,
                    rope_type="yarn", rotary_base=50000.0, rotary_scaling_factor=yarn["factor"], original_max_position_embeddings=16, beta_fast=1.0, beta_slow=1.0, mscale=1.0,
                    mscale_all_dim=1.0, moe_layer_freq=[0, 1, 1], moe_shared_expert_intermediate_size=FFN // 2, moe_router_score_function="sigmoid",
                    moe_router_enable_expert_bias=True, moe_router_topk_scaling_factor=2.827, moe_router_dtype="fp32"), moe_ffn_hidden_size=FFN // 2),
           dict(recipe="deepseek-v3", model_type="kimi_k2", stacked=False, spec=latent, scale=16 ** -0.5 * stretched, attention_softcap=0.0))
    yield ("glm4.5", t.Glm4MoeForCausalLM,
           t.Glm4MoeConfig(**COMMON, head_dim=HEAD_DIM, attention_bias=True, use_qk_norm=True, partial_rotary_factor=0.5, n_routed_experts=EXPERTS, num_experts_per_tok=2,
                           moe_intermediate_size=FFN, n_shared_experts=1, first_k_dense_replace=1, n_group=1, topk_group=1, routed_scaling_factor=2.5, norm_topk_prob=True),
           moe(add_qkv_bias=True, qk_layernorm=True, moe_layer_freq=[0, 1, 1], moe_shared_expert_intermediate_size=FFN, moe_router_score_function="sigmoid",
               moe_router_enable_expert_bias=True, moe_router_topk_scaling_factor=2.5, moe_router_dtype="fp32", mtp_num_layers=1),
           dict(stacked=False, rotary_percent=0.5, mtp=DEEPSEEK))
    linear = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=6, linear_value_head_dim=10, linear_conv_kernel_dim=3)
    yield ("qwen3-next", t.Qwen3NextForCausalLM,
           t.Qwen3NextConfig(**COMMON, **experts, **linear, head_dim=16, partial_rotary_factor=0.5, shared_expert_intermediate_size=FFN,
                             layer_types=["linear_attention", "linear_attention", "full_attention"]),
           moe(kv_channels=16, qk_layernorm=True, attention_output_gate=True, moe_shared_expert_intermediate_size=FFN, moe_shared_expert_gate=True,
               experimental_attention_variant="gated_delta_net", linear_attention_freq=3, mtp_num_layers=1, **linear),
           dict(stacked=False, rotary_percent=0.5, block=with_delta_net, finish=zero_centered, mtp=QWEN, args=dict(linear_num_key_heads=2),
                sets=["key_heads=2"], layouts=[["apart_projections=1"]]))
    # Its layers of Mamba want kernels of a GPU even to be built: only there and back.
    yield ("nemotron-h", t.NemotronHForCausalLM,
           t.NemotronHConfig(**{k: v for k, v in COMMON.items() if k not in ("num_hidden_layers", "rms_norm_eps")}, head_dim=HEAD_DIM, hybrid_override_pattern="M-M*-E",
                             mamba_num_heads=4, mamba_head_dim=16, ssm_state_size=8, n_groups=2, conv_kernel=4, n_routed_experts=EXPERTS, num_experts_per_tok=2,
                             moe_intermediate_size=FFN, moe_shared_expert_intermediate_size=FFN, n_group=1, topk_group=1),
           None, dict(stacked=False, layouts=[["apart_projections=1"]]))
    yield ("gemma3", t.Gemma3ForCausalLM,
           t.Gemma3TextConfig(**dict(COMMON, tie_word_embeddings=True), head_dim=HEAD_DIM, query_pre_attn_scalar=16, hidden_activation="gelu_pytorch_tanh",
                              layer_types=["full_attention"] * LAYERS),
           dict(activation_func=gelu_tanh, qk_layernorm=True), dict(spec=gemma, softcap=0.0, scale=16 ** -0.5, attention_softcap=0.0))
    # Every second layer has experts, which get the token times the weight of the router; queries and keys are normalized without weights.
    # Chunks of attention and the temperature of long contexts begin beyond what is tried.
    yield ("llama4", t.Llama4ForCausalLM,
           t.Llama4TextConfig(**COMMON, head_dim=HEAD_DIM, intermediate_size_mlp=2 * FFN, num_local_experts=EXPERTS, num_experts_per_tok=1, moe_layers=[1],
                              no_rope_layers=[1] * LAYERS, attn_temperature_tuning=False, rope_parameters={"rope_type": "default", "rope_theta": 500000.0}),
           dict(moe(qk_l2_norm=True, rotary_interleaved=True, moe_layer_freq=[0, 1, 0], moe_shared_expert_intermediate_size=FFN, moe_router_score_function="sigmoid",
                    moe_apply_probs_on_input=True, ffn_hidden_size=2 * FFN), moe_router_topk=1),
           dict(stacked=False))
    yield ("gpt2", t.GPT2LMHeadModel,
           t.GPT2Config(n_layer=LAYERS, n_embd=HIDDEN, n_head=HEADS, n_inner=FFN, vocab_size=VOCAB, n_positions=64, bos_token_id=1, eos_token_id=2,
                        attn_implementation="eager"),
           dict(normalization="LayerNorm", layernorm_epsilon=1e-5, gated_linear_unit=False, activation_func=gelu_tanh, add_bias_linear=True, add_qkv_bias=True,
                num_query_groups=HEADS),
           dict(positions="learned_absolute"))
    yield ("gpt-oss", t.GptOssForCausalLM,
           t.GptOssConfig(**COMMON, head_dim=HEAD_DIM, num_local_experts=EXPERTS, num_experts_per_tok=2, layer_types=["full_attention"] * LAYERS,
                          rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
           moe(add_bias_linear=True, add_qkv_bias=True, softmax_type="learnable", activation_func=quick_gelu, activation_func_clamp_value=7.0, glu_linear_offset=1.0),
           {})


def make_hf(kind, config):
    torch.manual_seed(7)
    model = kind(config).float().eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * 0.1 + (1.0 if "norm" in name and "gemma" not in config.model_type else 0.0))
    return model


def add_prediction(path, kind, config, mtp):
    """A layer that predicts further tokens, which transformers neither builds nor saves: as a layer of its own checkpoints. Returns
    what predicts with it, of transformers' own layers."""
    deeper = copy.deepcopy(config)
    deeper.num_hidden_layers = LAYERS + 1
    if getattr(deeper, "layer_types", None):
        deeper.layer_types = deeper.layer_types + deeper.layer_types[-1:]
    behind = make_hf(kind, deeper)
    behind.save_pretrained(path + "-deeper")
    file = os.path.join(path, "model.safetensors")
    state = load_file(file)
    stem = "model.layers.%d." % LAYERS
    layer = {k[len(stem):]: v for k, v in load_file(os.path.join(path + "-deeper", "model.safetensors")).items() if k.startswith(stem)}
    beside = {norm: torch.randn(HIDDEN) for norm in mtp["norms"]}
    beside[mtp["projection"]] = torch.randn(HIDDEN, 2 * HIDDEN)
    state.update({mtp.get("beside", mtp["layer"]) + k + ".weight": v for k, v in beside.items()})
    layer.update({k + ".weight": state[v + ".weight"].clone() for k, v in mtp["copies"].items()})
    save_file(dict(state, **{mtp["layer"] + k: v for k, v in layer.items()}), file, {"format": "pt"})
    # Only the last layer is run.
    behind.model.layers = behind.model.layers[LAYERS:]
    behind.model.config.num_hidden_layers = 1
    if getattr(deeper, "layer_types", None):
        behind.model.config.layer_types = deeper.layer_types[-1:]

    def predict(model, tokens):
        """Logits of the tokens after the next ones. DeepSeek-V3's report, 2.2: the state of a token and the next token's embedding,
        normalized and projected, go through a layer, and through the head of the model."""
        of_token, of_state, last = (type(model.model.norm)(HIDDEN, eps=1e-6) for _ in range(3))
        for norm, name in zip((of_token, of_state, last), mtp["norms"]):
            norm.weight.data = beside[name]
        state = of_state(model.model(tokens, use_cache=False).last_hidden_state)[:, :-1]
        token = of_token(model.model.embed_tokens(tokens[:, 1:]))
        both = torch.cat([state, token] if mtp.get("hidden_first") else [token, state], -1) @ beside[mtp["projection"]].T
        behind.model.norm = last
        return model.lm_head(behind.model(inputs_embeds=both, use_cache=False).last_hidden_state)

    return predict


def make_megatron(config, changes, more):
    kw = dict(num_layers=LAYERS, hidden_size=HIDDEN, num_attention_heads=HEADS, num_query_groups=GROUPS, kv_channels=HEAD_DIM, ffn_hidden_size=FFN,
              normalization="RMSNorm", layernorm_epsilon=1e-6, gated_linear_unit=True, activation_func=SILU, add_bias_linear=False,
              attention_dropout=0.0, hidden_dropout=0.0, bias_dropout_fusion=False, use_cpu_initialization=True, apply_rope_fusion=False,
              masked_softmax_fusion=False, attention_softmax_in_fp32=True)
    kw.update(changes)
    made = (MLATransformerConfig if "q_lora_rank" in kw else TransformerConfig)(**kw)
    if "block" in more:
        spec = more["block"](made)
    elif "moe_layer_freq" in kw:
        spec = get_gpt_decoder_block_spec(made, use_transformer_engine=False, normalization="RMSNorm", qk_l2_norm=made.qk_l2_norm)
    else:
        spec = get_gpt_layer_local_spec(num_experts=kw.get("num_moe_experts"), moe_grouped_gemm=False, qk_layernorm=kw.get("qk_layernorm", False),
                                        normalization=kw["normalization"])
    if "spec" in more:
        Attention.scale, Attention.softcap = more["scale"], more["attention_softcap"]
        more["spec"](spec)
    rope = getattr(config, "rope_parameters", None) or {}
    theta = rope.get("full_attention", rope).get("rope_theta") or 10000.0
    mtp = get_gpt_mtp_block_spec(made, spec, use_transformer_engine=False) if made.mtp_num_layers else None
    model = GPTModel(config=made, transformer_layer_spec=spec, mtp_block_spec=mtp, vocab_size=PADDED, max_sequence_length=64, position_embedding_type=more.get("positions", "rope"),
                     rotary_percent=more.get("rotary_percent", 1.0),
                     rotary_base=theta, share_embeddings_and_output_weights=config.tie_word_embeddings).eval()
    if "softcap" in more:
        as_gemma(model, more["softcap"])
    if "finish" in more:
        more["finish"](model)
    return model


def hashes(path):
    found = {}
    for name in sorted(os.listdir(path)):
        if name.endswith(".safetensors"):
            for key, t in load_file(os.path.join(path, name)).items():
                found[key] = (str(t.dtype), tuple(t.shape), hashlib.sha256(t.contiguous().numpy().tobytes()).hexdigest())
    return found


def same(one, other, what):
    assert set(one) == set(other), "%s: lacks %s, has %s" % (what, sorted(set(one) - set(other))[:5], sorted(set(other) - set(one))[:5])
    wrong = [k for k in one if one[k] != other[k]]
    assert not wrong, "%s: differ: %s" % (what, wrong[:5])


def prove(name, kind, config, changes, more, place):
    name = more.get("recipe", name)
    hf_dir = os.path.join(place, "hf")
    model = make_hf(kind, config)
    model.save_pretrained(hf_dir)
    predict = add_prediction(hf_dir, kind, config, more["mtp"]) if "mtp" in more else None
    truth = hashes(hf_dir)
    apart = 0.0 if changes is None else run_both(name, model, predict, config, changes, more, place, truth)
    layouts_back(name, changes or {}, more, place, truth)
    return apart


def run_both(name, model, predict, config, changes, more, place, truth):
    """How far the logits are apart; what Megatron saves becomes the same tensors again."""
    hf_dir, mg_file = os.path.join(place, "hf"), os.path.join(place, "mg.pt")
    ours = "--set fused_norms=0 --set sequential_experts=1 --set padded_vocab_size=%d" % PADDED
    mapped(hf_dir, mg_file, "--to", "torch", "--map", name + "-megatron-from-hf", *ours.split())
    state = torch.load(mg_file)
    megatron = make_megatron(config, changes, more)
    wanted = {k for k, v in megatron.state_dict().items() if "_extra_state" not in k}
    same(dict.fromkeys(wanted), dict.fromkeys(state), "names of Megatron's modules")
    megatron.load_state_dict(state, strict=False)
    # Further tokens are only predicted where there are labels. Without the number of their layers the logits come behind the others.
    ahead, megatron.config.mtp_num_layers = megatron.config.mtp_num_layers, None
    tokens = torch.randint(0, VOCAB, (2, LENGTH), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        want = model(tokens).logits
        mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)[None, None]
        got = megatron(tokens, torch.arange(LENGTH).expand(2, -1), mask)[..., :VOCAB]
        if predict:
            # Of the last token the next one is not known.
            want = torch.cat([want, predict(model, tokens)], 1)
            got = got[:, :-1]
    apart = (want - got).abs().max().item()
    assert want.abs().max() > 0.01 and apart < 1e-5 * max(1.0, want.abs().max()), "%s: logits up to %g are %g apart" % (name, want.abs().max(), apart)
    megatron.config.mtp_num_layers = ahead

    # What Megatron saves, by args alone.
    saved = os.path.join(place, "dist")
    os.makedirs(saved)
    args = argparse.Namespace(num_attention_heads=HEADS, vocab_size=VOCAB, padded_vocab_size=PADDED, num_experts=EXPERTS, num_layers=LAYERS,
                              **more.get("args", {}))
    dist_checkpointing.save(dict(megatron.sharded_state_dict(), args=args, iteration=1), saved)
    back = os.path.join(place, "back")
    mapped(saved, back, "--to", "safetensors", "--map", name + "-hf-from-megatron")
    same(truth, hashes(back), name + " from torch_dist")
    return apart


def layouts_back(name, changes, more, place, truth):
    """The layouts in which Megatron's checkpoints come, there and back. No args say how many heads."""
    hf_dir = os.path.join(place, "hf")
    heads = ["--set", "vocab_size=%d" % VOCAB] + (["--set", "heads=%d" % HEADS] if "q_lora_rank" not in changes else [])
    if more.get("mtp") is DEEPSEEK:
        heads += ["--set", "layers=%d" % LAYERS]
    heads += [w for s in more.get("sets", []) for w in ("--set", s)]
    layouts = [[], ["stacked=1"], ["sequential_experts=1"], ["grouped_experts=1", "stacked=1"], ["fused_norms=0", "padded_vocab_size=%d" % PADDED]] + more.get("layouts", [])
    for i, layout in enumerate(layouts):
        if "stacked=1" in layout and not more.get("stacked", True):
            continue
        there, again = os.path.join(place, "there%d" % i), os.path.join(place, "again%d" % i)
        mapped(hf_dir, there, "--to", "safetensors", "--map", name + "-megatron-from-hf", *(w for l in layout for w in ("--set", l)))
        mapped(there, again, "--to", "safetensors", "--map", name + "-hf-from-megatron", *heads)
        same(truth, hashes(again), "%s with %s" % (name, layout))
    if name in TITAN:
        there, again = os.path.join(place, "titan"), os.path.join(place, "from_titan")
        ahead = more["mtp"]["layer"] if "mtp" in more else "none"  # torchtitan has no such layers
        mapped(hf_dir, there, "--to", "safetensors", "--map", TITAN[name] + "-torchtitan-from-hf", "--exclude", ahead + "*")
        kept = [k for k in hashes(there) if k.startswith("model.")]
        assert not kept, "torchtitan has other names than %s" % kept[:5]
        mapped(there, again, "--to", "safetensors", "--map", TITAN[name] + "-hf-from-torchtitan")
        same({k: v for k, v in truth.items() if not k.startswith(ahead)}, hashes(again), name + " by way of torchtitan")


def main():
    only = sys.argv[1:]
    failures = done = 0
    with tempfile.TemporaryDirectory() as place:
        dist.init_process_group("gloo", init_method="file://" + os.path.join(place, "meet"), rank=0, world_size=1)
        parallel_state.initialize_model_parallel()
        # Random numbers of a GPU, and the memory of the processes that write: neither is there, nor needed.
        get_cuda_rng_tracker().fork = lambda *names: contextlib.nullcontext()
        filesystem_async._process_memory = lambda: 0
        # What core 0.16.1 forgets without Transformer Engine.
        moe_utils.te_general_gemm = None
        for name in ("TELinear", "TEColumnParallelLinear"):
            if not isinstance(getattr(multi_latent_attention, name), type):
                setattr(multi_latent_attention, name, ())
        # Megatron's own manager of queues would outlive this process.
        manager = multiprocessing.get_context("fork").Manager()
        filesystem_async._get_write_results_queue = manager.Queue
        for name, kind, config, changes, more in families():
            if only and name not in only:
                continue
            begin = time.monotonic()
            try:
                inner = os.path.join(place, name)
                os.makedirs(inner)
                apart = prove(name, kind, config, changes, more, inner)
                print("%s: %s, %.1f s" % (name, "logits %.1e apart" % apart if apart else "there and back", time.monotonic() - begin), flush=True)
                done += 1
            except Exception as error:  # one failing family must not hide the others
                failures += 1
                print("FAIL %s: %s" % (name, error))
                if not isinstance(error, AssertionError):
                    traceback.print_exc(limit=-6)
    print("%d families, %d failures" % (done, failures))
    manager.shutdown()
    sys.stdout.flush()
    os._exit(1 if failures or not done else 0)


if __name__ == "__main__":
    main()

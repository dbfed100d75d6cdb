#!/usr/bin/env python3
"""make_tensor_parallel.py OUT: models in files of tensor-parallel ranks with equal names, laid out by hand after vLLM's ShardedStateLoader, TensorRT-LLM,
meta-llama/llama, DeepSeek-V3/inference/convert.py, Grok's published files and neuronx_distributed. Needs torch and safetensors."""
import hashlib
import itertools
import json
import pathlib
import sys

import torch
from safetensors.torch import save_file

H, FFN, HEADS, KEYS, VOCAB = 16, 24, 4, 2, 32
HEAD = H // HEADS


class Case:
    def __init__(self, out, name, world, config=None, config_name="config.json"):
        self.place, self.world, self.whole, self.ranks = pathlib.Path(out) / name, world, {}, [{} for _ in range(world)]
        (self.place / "ckpt").mkdir(parents=True)
        if config is not None:
            (self.place / "ckpt" / config_name).write_text(json.dumps(config))

    def put(self, name, whole, pieces):
        self.whole[name] = whole
        for rank, piece in enumerate(pieces):
            if piece is not None:
                self.ranks[rank][name] = piece.contiguous().clone()

    def rows(self, name, *shape):
        whole = torch.randn(*shape).bfloat16()
        self.put(name, whole, whole.chunk(self.world))

    def columns(self, name, *shape, axis=1):
        whole = torch.randn(*shape).bfloat16()
        self.put(name, whole, whole.chunk(self.world, axis))

    def same(self, name, *shape):
        whole = torch.randn(*shape).bfloat16()
        self.put(name, whole, [whole] * self.world)

    def fused(self, name, parts, tail, axis=0, repeat=1):
        whole = [torch.randn(*tail[:axis], size, *tail[axis:]).bfloat16() for size in parts]
        cut = [w.chunk(self.world if p == 0 or repeat == 1 else self.world // repeat, axis) for p, w in enumerate(whole)]
        self.put(name, torch.cat(whole, axis), [torch.cat([c[rank * len(c) // self.world] for c in cut], axis) for rank in range(self.world)])

    def save(self, name_of, only=None, torch_files=False, **more):
        for rank, state in enumerate(self.ranks):
            if only is None or rank in only:
                (torch.save if torch_files else save_file)(state, str(self.place / "ckpt" / name_of(rank)))
        tensors = {n: {"dtype": "bfloat16", "shape": list(w.shape), "sha256": hashlib.sha256(w.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest(),
                       "nan": 0, "inf": 0} for n, w in self.whole.items()}
        expected = {"about": self.place.name, "framework": "by hand", "format": "tensor_parallel", "world_size": self.world,
                    "mesh": {"dims": ["tp"], "shape": [self.world]}, "tensors": {} if "findings" in more else tensors, "objects": {}, **more}
        (self.place / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


CONFIG = {"architectures": ["LlamaForCausalLM"], "hidden_size": H, "num_attention_heads": HEADS, "num_key_value_heads": KEYS, "vocab_size": VOCAB}


def vllm(out, name, world, experts=False, unknown=False):
    case = Case(out, name, world, CONFIG)
    case.rows("model.embed_tokens.weight", VOCAB, H)
    case.rows("lm_head.weight", VOCAB, H)
    case.same("model.norm.weight", H)
    p = "model.layers.0."
    case.fused(p + "self_attn.qkv_proj.weight", [HEADS * HEAD, KEYS * HEAD, KEYS * HEAD], (H,), repeat=max(1, world // KEYS))
    case.fused(p + "self_attn.qkv_proj.bias", [HEADS * HEAD, KEYS * HEAD, KEYS * HEAD], (), repeat=max(1, world // KEYS))
    case.columns(p + "self_attn.o_proj.weight", H, H)
    case.fused(p + "mlp.gate_up_proj.weight", [FFN, FFN], (H,))
    case.columns(p + "mlp.down_proj.weight", H, FFN)
    case.same(p + "input_layernorm.weight", H)
    if experts:
        case.same(p + "mlp.gate.weight", 2, H)
        case.fused(p + "mlp.experts.w13_weight", [FFN, FFN], (2, H), axis=1)
        case.columns(p + "mlp.experts.w2_weight", 2, H, FFN, axis=2)
    if unknown:
        case.rows(p + "linear_attn.in_proj.weight", 3 * H, H)
    return case


def vllm_name(rank):
    return f"model-rank-{rank}-part-0.safetensors"


def meta(out, name, columns):
    case = Case(out, name, 2, {"dim": H, "n_layers": 1, "n_heads": HEADS, "n_kv_heads": KEYS, "vocab_size": -1 if columns else VOCAB}, "params.json")
    (case.columns if columns else case.rows)("tok_embeddings.weight", VOCAB, H)
    case.rows("output.weight", VOCAB, H)
    case.same("norm.weight", H)
    case.same("rope.freqs", HEAD // 2)
    p = "layers.0."
    for layer, rows in (("attention.wq", HEADS * HEAD), ("attention.wk", KEYS * HEAD), ("attention.wv", KEYS * HEAD), ("feed_forward.w1", FFN), ("feed_forward.w3", FFN)):
        case.rows(p + layer + ".weight", rows, H)
    case.columns(p + "attention.wo.weight", H, H)
    case.columns(p + "feed_forward.w2.weight", H, FFN)
    case.same(p + "attention_norm.weight", H)
    case.same(p + "ffn_norm.weight", H)
    case.save(lambda r: f"consolidated.{r:02}.pth", torch_files=True)


def nxd(out, name, stages=1, drop=(), replicas=0, **more):
    """model/dp_rank_00_tp_rank_TT_pp_rank_PP.pt; a stage holds its own layers, the first and the last one the tied embedding."""
    parts = []
    for p in range(stages):
        case = Case(out, f"{name}-stage{p}", 2)
        if p in (0, stages - 1):
            torch.manual_seed(77)
            case.rows("model.embed_tokens.weight", VOCAB, H)
        torch.manual_seed(78 + p)
        layer = f"model.layers.{p}."
        case.rows(layer + "self_attn.q_proj.weight", H, H)
        case.columns(layer + "self_attn.o_proj.weight", H, H)
        case.fused(layer + "mlp.gate_up_proj.weight", [FFN, FFN], (H,))
        case.columns(layer + "mlp.down_proj.weight", H, FFN)
        case.same(layer + "input_layernorm.weight", H)
        parts.append(case)
    whole = Case(out, name, 2)
    model = whole.place / "ckpt" / "model"
    model.mkdir()
    for p, case in enumerate(parts):
        whole.whole.update(case.whole)
        for rank, state in enumerate(case.ranks):
            torch.save(state, str(model / f"dp_rank_00_tp_rank_{rank:02}_pp_rank_{p:02}.pt"))
        (case.place / "ckpt").rmdir()
        case.place.rmdir()
    for r, t, p in itertools.product(range(replicas), range(2), range(stages)):
        optim = whole.place / "ckpt" / "optim"
        optim.mkdir(exist_ok=True)
        torch.save({"base_state": {0: {"exp_avg": torch.zeros(2)}}}, str(optim / f"dp_rank_{r:02}_tp_rank_{t:02}_pp_rank_{p:02}.pt"))
    for mark in ("checkpoint", "done"):
        (whole.place / "ckpt" / mark).write_text("1")
    for file in drop:
        (whole.place / "ckpt" / file).unlink()
    whole.save(None, only=[], world_size=2 * stages, mesh={"dims": ["pp", "tp"], "shape": [stages, 2]}, **more)


def stages(out, name, parts, name_of, config=None, drop=(), copy=(), **more):
    """parts: a case for each stage, whose names are those of the whole model."""
    whole = Case(out, name, 2, config)
    for p, (case, renamed) in enumerate(parts):
        whole.whole.update(case.whole)
        for rank, state in enumerate(case.ranks):
            save_file({renamed(n): t for n, t in state.items()}, str(whole.place / "ckpt" / name_of(p, rank)))
        (case.place / "ckpt").rmdir()
        case.place.rmdir()
    for file in drop:
        (whole.place / "ckpt" / file).unlink()
    for a, b in copy:
        (whole.place / "ckpt" / b).write_bytes((whole.place / "ckpt" / a).read_bytes())
    whole.save(None, only=[], world_size=4, mesh={"dims": ["pp", "tp"], "shape": [2, 2]}, **more)


def vllm_stages(out, name, **more):
    parts = []
    for p in range(2):
        case = Case(out, f"{name}-{p}", 2)
        case.rows("lm_head.weight" if p else "model.embed_tokens.weight", VOCAB, H)
        layer = f"model.layers.{p}."
        case.fused(layer + "mlp.gate_up_proj.weight", [FFN, FFN], (H,))
        case.columns(layer + "mlp.down_proj.weight", H, FFN)
        case.same(layer + "input_layernorm.weight", H)
        parts.append((case, lambda n: n))
    stages(out, name, parts, lambda p, t: f"model-pp-{p}-tp-{t}-part-0.safetensors", **more)


def trt_stages(out, name, **more):
    """Each stage counts its layers from 0."""
    parts = []
    for p in range(2):
        case = Case(out, f"{name}-{p}", 2)
        if p:
            case.rows("lm_head.weight", VOCAB, H)
        else:
            case.same("transformer.vocab_embedding.weight", VOCAB, H)
        for layer in range(2 * p, 2 * p + 2):
            prefix = f"transformer.layers.{layer}."
            case.columns(prefix + "attention.dense.weight", H, H)
            case.rows(prefix + "mlp.gate.weight", FFN, H)
            case.same(prefix + "input_layernorm.weight", H)
        parts.append((case, lambda n, p=p: n.replace("layers.2.", "layers.0.").replace("layers.3.", "layers.1.") if p else n))
    stages(out, name, parts, lambda p, t: f"rank{2 * p + t}.safetensors",
           {"hidden_size": H, "num_hidden_layers": 4, "mapping": {"world_size": 4, "tp_size": 2, "pp_size": 2}}, **more)


def experts(out):
    """Experts split among ranks: of vLLM, where the router says how many there are; of TensorRT-LLM, where two ranks have each expert's parts."""
    case = Case(out, "vllm-ep2", 2)
    case.same("model.layers.0.mlp.gate.weight", 4, H)
    case.rows("model.layers.0.mlp.experts.w13_weight", 4, 2 * FFN, H)
    case.rows("model.layers.0.mlp.experts.w2_weight", 4, H, FFN)
    case.rows("model.embed_tokens.weight", VOCAB, H)
    case.save(vllm_name)
    case = Case(out, "trtllm-ep2-tp4", 4, {"hidden_size": H, "moe": {"num_experts": 4}, "mapping": {"world_size": 4, "tp_size": 4, "moe_tp_size": 2, "moe_ep_size": 2}})
    gate, up, down = (torch.randn(4, *shape).bfloat16() for shape in ((FFN, H), (FFN, H), (H, FFN)))
    group = [slice(2 * (r % 2), 2 * (r % 2) + 2) for r in range(4)]
    prefix = "transformer.layers.0.mlp."
    case.put(prefix + "fc.weight", torch.cat([gate, up], 1), [torch.cat([w[g].chunk(2, 1)[r // 2] for w in (gate, up)], 1) for r, g in enumerate(group)])
    case.put(prefix + "proj.weight", down, [down[g].chunk(2, 2)[r // 2] for r, g in enumerate(group)])
    case.same(prefix + "router.weight", 4, H)
    case.save(lambda r: f"rank{r}.safetensors")
    case = Case(out, "meta-llama4-tp2", 2, {"dim": H, "n_heads": HEADS, "n_kv_heads": KEYS, "moe_args": {"num_experts": 4}}, "params.json")
    prefix = "layers.0.feed_forward."
    case.columns(prefix + "experts.moe_w_in_eD_F", 4 * H, FFN)
    case.columns(prefix + "experts.moe_w_swiglu_eD_F", 4 * H, FFN)
    case.fused(prefix + "experts.moe_w_out_eF_D", [FFN] * 4, (H,))
    case.rows(prefix + "w_in_shared_FD.weight", FFN, H)
    case.columns(prefix + "w_out_shared_DF.weight", H, FFN)
    case.same(prefix + "router_DE", H, 4)
    case.fused("layers.0.attention.wqkv.weight", [H, KEYS * HEAD, KEYS * HEAD], (H,))
    case.same("layers.0.attention.wqkv.layer_norm_weight", H)
    case.rows("tok_embeddings.weight", VOCAB, H)
    case.save(lambda r: f"consolidated.{r:02}.pth", torch_files=True)


def of_several_saves(out):
    def grok(name, world):
        case = Case(out, name, world, {"hidden_size": H, "moe_intermediate_size": FFN})
        case.rows("model.layers.0.block_sparse_moe.experts.0.w1.weight", FFN, H)
        return case, lambda r: f"pytorch_model-00000-TP-{r:03}.safetensors"
    case, name = grok("bad-last-rank-lost", 4)
    case.save(name, only=range(3), findings=[{"kind": "missing-file", "file": name(3)}])
    case, name = grok("bad-ranks-of-larger-save", 2)
    larger, _ = grok("larger", 4)
    for rank in (2, 3):
        save_file(larger.ranks[rank], str(case.place / "ckpt" / name(rank)))
    for place in (larger.place / "ckpt" / "config.json", larger.place / "ckpt", larger.place):
        place.unlink() if place.is_file() else place.rmdir()
    case.save(name, findings=[{"kind": "mixed-world-sizes", "file": name(2)}])
    case = Case(out, "bad-common-copied-over", 2)
    case.rows("model.layers.0.mlp.up_proj.weight", FFN, H)
    save_file(case.ranks[0], str(case.place / "ckpt" / "pytorch_model-00000-TP-common.safetensors"))
    case.save(lambda r: f"pytorch_model-00001-TP-{r:03}.safetensors", findings=[{"kind": "copy-differs", "tensor": "model.layers.0.mlp.up_proj.weight"}])


def main():
    out = sys.argv[1]
    torch.manual_seed(5)
    vllm(out, "vllm-tp2", 2, experts=True).save(vllm_name)
    vllm(out, "vllm-tp4-repeated-keys", 4).save(vllm_name)
    vllm(out, "vllm-tp1", 1).save(vllm_name)
    meta(out, "meta-tp2", False)
    meta(out, "meta-llama2-tp2", True)
    case = Case(out, "trtllm-tp2", 2, {"architecture": "LlamaForCausalLM", "hidden_size": H, "mapping": {"world_size": 2, "tp_size": 2, "pp_size": 1}})
    case.same("transformer.vocab_embedding.weight", VOCAB, H)
    case.same("transformer.ln_f.weight", H)
    case.columns("transformer.layers.0.attention.dense.weight", H, H)
    case.same("transformer.layers.0.attention.dense.bias", H)
    case.rows("transformer.layers.0.mlp.fc.weight", FFN, H)
    case.rows("transformer.layers.0.mlp.fc.bias", FFN)
    case.columns("transformer.layers.0.mlp.proj.weight", H, FFN)
    case.save(lambda r: f"rank{r}.safetensors")
    case = Case(out, "deepseek-mp2", 2)
    case.rows("embed.weight", VOCAB, H)
    case.rows("head.weight", VOCAB, H)
    case.same("layers.0.attn.wq_a.weight", 8, H)
    case.rows("layers.0.attn.wq_b.weight", H, 8)
    case.columns("layers.0.attn.wo.weight", H, H)
    for expert in range(4):
        whole = torch.randn(FFN, H).bfloat16()
        case.put(f"layers.0.ffn.experts.{expert}.w1.weight", whole, [whole if expert // 2 == r else None for r in range(2)])
    case.save(lambda r: f"model{r}-mp2.safetensors")
    case = Case(out, "grok-tp4", 4, {"hidden_size": H})
    case.rows("model.layers.0.block_sparse_moe.experts.0.w1.weight", FFN, H)
    case.columns("model.layers.0.block_sparse_moe.experts.0.w2.weight", H, FFN)
    common = {"model.embed_tokens.weight": torch.randn(VOCAB, H).bfloat16(), "model.norm.weight": torch.randn(H).bfloat16()}
    save_file(common, str(case.place / "ckpt" / "pytorch_model-00000-TP-common.safetensors"))
    case.whole.update(common)
    case.save(lambda r: f"pytorch_model-00001-TP-{r:03}.safetensors")
    case = Case(out, "bad-ranks-of-another-kind", 2)  # cut along dimension 0 as FSDP does
    case.rows("layers.0.attention.dense.weight", H, H)
    case.same("ln_f.weight", H)
    case.save(lambda r: f"rank{r}.safetensors", findings=[{"kind": "fused-layout", "tensor": "layers.0.attention.dense.weight"}])
    vllm(out, "bad-unknown-projection", 2, unknown=True).save(vllm_name, findings=[{"kind": "fused-layout", "tensor": "model.layers.0.linear_attn.in_proj.weight"}])
    vllm(out, "bad-missing-rank", 2).save(vllm_name, only=[1], findings=[{"kind": "missing-file", "file": vllm_name(0)}])
    vllm(out, "bad-missing-last-rank", 2).save(vllm_name, only=[0], findings=[{"kind": "missing-file", "tensor": "model.embed_tokens.weight"}])
    case = vllm(out, "bad-norms-differ", 2)
    case.ranks[1]["model.norm.weight"][0] += 1
    case.save(vllm_name, findings=[{"kind": "replica-mismatch", "tensor": "model.norm.weight"}])
    nxd(out, "nxd-tp2")
    nxd(out, "nxd-tp2pp2", 2)
    nxd(out, "bad-nxd-not-done", drop=["done"], findings=[{"kind": "missing-file", "file": "done"}])
    lost = "optim/dp_rank_01_tp_rank_00_pp_rank_00.pt"
    nxd(out, "bad-nxd-optimizer-lost", replicas=2, drop=[lost], findings=[{"kind": "missing-file", "file": lost}])
    lost = "model/dp_rank_00_tp_rank_01_pp_rank_01.pt"
    nxd(out, "bad-nxd-rank-lost", 2, drop=[lost], findings=[{"kind": "missing-file", "file": lost}])
    vllm_stages(out, "vllm-tp2pp2")
    lost = "model-pp-1-tp-1-part-0.safetensors"
    vllm_stages(out, "bad-vllm-stage-lost", drop=[lost], findings=[{"kind": "missing-file", "file": lost}])
    vllm_stages(out, "bad-vllm-stage-copied-over", copy=[("model-pp-0-tp-0-part-0.safetensors", lost)], findings=[{"kind": "missing-file", "tensor": "lm_head.weight"}])
    trt_stages(out, "trtllm-tp2pp2")
    trt_stages(out, "bad-trtllm-rank-lost", drop=["rank3.safetensors"], findings=[{"kind": "missing-file", "file": "rank3.safetensors"}])
    experts(out)
    of_several_saves(out)


if __name__ == "__main__":
    main()

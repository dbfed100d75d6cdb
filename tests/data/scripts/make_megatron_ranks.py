#!/usr/bin/env python3
"""make_megatron_ranks.py OUT: mp_rank_* directories (--ckpt-format torch) laid out by hand after megatron-core 0.16.1, where the package itself needs a GPU
or other packages: grouped experts (moe/experts.py, GroupedMLP), Mamba (ssm/mamba_mixer.py), gated delta net (ssm/gated_delta_net.py), a
directory for each tensor- and expert-parallel rank, and a projection that nobody knows. Needs torch."""
import argparse
import hashlib
import json
import pathlib
import sys

import torch

ARGS = {"num_layers": 1, "hidden_size": 8, "num_attention_heads": 4, "padded_vocab_size": 16, "pipeline_model_parallel_size": 1, "ckpt_format": "torch"}


class Case:
    def __init__(self, out, name, about, tp=1, ep=1, etp=None, rows=True, **args):
        self.place, self.tp, self.ep, self.etp, self.about = pathlib.Path(out) / name, tp, ep, etp or tp, about
        self.args = argparse.Namespace(**{**ARGS, "tensor_model_parallel_size": tp, "expert_model_parallel_size": ep, "expert_tensor_parallel_size": etp,
                                          "world_size": tp * ep, "data_parallel_size": ep, "swiglu": True, **args})
        self.ranks = {(t, e): {} for e in range(ep) for t in range(tp)}
        self.whole = {}
        self.put("embedding.word_embeddings.weight", torch.randn(16, 8), lambda w, t, e: w.chunk(tp)[t])
        self.put("decoder.final_layernorm.weight", torch.randn(8), lambda w, t, e: w)

    def put(self, name, whole, local, as_name=None):
        self.whole["model." + name] = whole
        for (t, e), state in self.ranks.items():
            mine = local(whole, t, e)
            if mine is not None:
                state[as_name(e) if as_name else name] = mine.contiguous().clone()

    def parts(self, name, sizes, tail=()):
        parts = [torch.randn(s, *tail) for s in sizes]
        self.put(name, torch.cat(parts), lambda w, t, e: torch.cat([p.chunk(self.tp)[t] for p in w.split(sizes)]))

    def save(self, only=None, **more):
        for (t, e), state in self.ranks.items():
            if only and (t, e) not in only:
                continue
            place = self.place / "ckpt" / "iter_0000010" / (f"mp_rank_{t:02}" + (f"_{e:03}" if self.ep > 1 else ""))
            place.mkdir(parents=True)
            torch.save({"args": self.args, "checkpoint_version": 3.0, "iteration": 10, "model": state}, place / "model_optim_rng.pt")
        (self.place / "ckpt" / "latest_checkpointed_iteration.txt").write_text("10")
        tensors = {n: {"dtype": "float32", "shape": list(w.shape), "sha256": hashlib.sha256(w.contiguous().numpy().tobytes()).hexdigest(), "nan": 0, "inf": 0}
                   for n, w in self.whole.items()}
        expected = {"about": self.about, "framework": "by hand after megatron-core 0.16.1", "format": "megatron_legacy", "world_size": self.tp * self.ep,
                    "mesh": None, "tensors": tensors, "objects": {}, **more}
        (self.place / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def grouped(case, experts, hidden=8, ffn=6, gated=True):
    """weight1 and weight2 of an expert-parallel rank are views of [experts, hidden, ffn] and [experts, ffn, hidden]."""
    tp, ep, etp, wide = case.tp, case.ep, case.etp, ffn * (2 if gated else 1)
    first, second = torch.randn(experts, hidden, wide), torch.randn(experts, ffn, hidden)

    def local1(_, t, e):
        mine = first.chunk(ep)[e].split(ffn, -1)
        return torch.cat([part.chunk(etp, -1)[t % etp] for part in mine], -1).reshape(hidden, -1)

    def local2(_, t, e):
        return second.chunk(ep)[e].chunk(etp, 1)[t % etp].reshape(-1, hidden)
    case.put("decoder.layers.0.mlp.experts.weight1", first.reshape(hidden, -1), local1)
    case.put("decoder.layers.0.mlp.experts.weight2", second.reshape(-1, hidden), local2)
    case.put("decoder.layers.0.mlp.router.weight", torch.randn(experts, hidden), lambda w, t, e: w)


def main():
    out = sys.argv[1]
    torch.manual_seed(11)
    case = Case(out, "m0.16.1-hand-legacy-grouped-ep2", "grouped experts (weight1, weight2) over expert-parallel ranks", ep=2, num_experts=4)
    grouped(case, 4)
    case.save()
    case = Case(out, "m0.16.1-hand-legacy-grouped-tp2ep2", "grouped experts over expert- and tensor-parallel ranks, with a gate", tp=2, ep=2, num_experts=4)
    grouped(case, 4)
    case.save()
    case = Case(out, "m0.16.1-hand-legacy-grouped-plain-tp2ep2", "grouped experts over expert- and tensor-parallel ranks, without a gate", tp=2, ep=2,
                num_experts=4, swiglu=False)
    grouped(case, 4, gated=False)
    case.save()
    case = Case(out, "m0.16.1-hand-legacy-etp1-grid", "a directory for each tensor- and expert-parallel rank, whole experts on each tensor-parallel rank",
                tp=2, ep=2, etp=1, num_experts=4)
    grouped(case, 4)
    for expert in range(4):
        for layer, shape in (("linear_fc1", (12, 8)), ("linear_fc2", (8, 6))):
            name = "decoder.layers.0.mlp.experts.local_experts.%d." + layer + ".weight"
            case.put(name % expert, torch.randn(*shape), lambda w, t, e, x=expert: w if x // 2 == e else None, lambda e, n=name, x=expert: n % (x % 2))
    case.save()
    case = Case(out, "m0.16.1-hand-legacy-mamba-tp2", "Mamba: in_proj is [z x B C dt] and conv1d [x B C] on each rank", tp=2, swiglu=False)
    p, inner, groups, heads = "decoder.layers.0.mixer.", 16, 8, 4
    case.parts(p + "in_proj.weight", [inner, inner, groups, groups, heads], (8,))
    case.parts(p + "conv1d.weight", [inner, groups, groups], (1, 4))
    case.parts(p + "conv1d.bias", [inner, groups, groups])
    for name in ("A_log", "D", "dt_bias"):
        case.parts(p + name, [heads])
    case.parts(p + "norm.weight", [inner])
    case.put(p + "out_proj.weight", torch.randn(8, inner), lambda w, t, e: w.chunk(2, 1)[t])
    case.put(p + "in_proj.layer_norm_weight", torch.randn(8), lambda w, t, e: w)
    case.save()
    case = Case(out, "m0.16.1-hand-legacy-delta-tp2", "gated delta net: in_proj is [q k v z beta alpha] and conv1d [q k v] on each rank", tp=2)
    p, keys, values, heads = "decoder.layers.0.self_attention.", 8, 16, 4
    case.parts(p + "in_proj.weight", [keys, keys, values, values, heads, heads], (8,))
    case.parts(p + "conv1d.weight", [keys, keys, values], (1, 4))
    for name in ("A_log", "dt_bias"):
        case.parts(p + name, [heads])
    case.put(p + "out_norm.weight", torch.randn(4), lambda w, t, e: w)
    case.put(p + "out_proj.weight", torch.randn(8, values), lambda w, t, e: w.chunk(2, 1)[t])
    case.put(p + "in_proj.layer_norm_weight", torch.randn(8), lambda w, t, e: w)
    case.save()
    case = Case(out, "m0.16.1-bad-legacy-unknown-tp2", "a projection of a layer that is not known", tp=2)
    case.parts("decoder.layers.0.self_attention.linear_other.weight", [8, 8], (8,))
    p = "decoder.layers.0.mixer."
    case.parts(p + "in_proj.weight", [24], (8,))
    case.parts(p + "conv1d.weight", [8], (1, 4))
    case.parts(p + "A_log", [2])
    case.parts(p + "norm.weight", [8])
    case.put(p + "out_proj.weight", torch.randn(8, 8), lambda w, t, e: w.chunk(2, 1)[t])
    unknown = [n for n in case.whole if "linear_other" in n or "mixer" in n]
    case.whole = {n: w for n, w in case.whole.items() if n not in unknown}
    case.save(findings=[{"kind": "fused-layout", "tensor": n} for n in unknown])


if __name__ == "__main__":
    main()

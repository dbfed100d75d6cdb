#!/usr/bin/env python3
"""make_nanotron.py OUT: checkpoints of nanotron, laid out by hand after its serialize package (weights.py, metadata.py, optimizer.py, random.py).
Needs torch and safetensors."""
import hashlib
import json
import pathlib
import sys

import torch
from safetensors.torch import save_file

H, FFN, VOCAB = 8, 12, 20


def entry(t):
    raw = t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return {"dtype": str(t.dtype)[6:], "shape": list(t.shape), "sha256": hashlib.sha256(raw).hexdigest(), "nan": 0, "inf": 0}


def slices_text(slices):
    return "|".join(f"{a},{b},None" if (a, b) != (None, None) else "None,None,None" for a, b in slices)


class Case:
    def __init__(self, out, name, pp=1, tp=1, dp=1, exp=1):
        self.pp, self.tp, self.dp, self.exp = pp, tp, dp, exp
        self.place = pathlib.Path(out) / name
        self.step = self.place / "ckpt"
        self.tensors, self.state = {}, {}
        (self.step / "model").mkdir(parents=True)
        self.local = {}  # (stage, expert rank, tp rank): [(name, local tensor, slices)]

    def put(self, name, whole, stage=0, cut=None, parts=None, experts=False):
        """cut: the dimension; parts: sizes that are cut each by itself."""
        *path, leaf = name.split(".")
        folder = self.step / "model" / pathlib.Path(*path)
        folder.mkdir(parents=True, exist_ok=True)
        self.tensors[name] = entry(whole)
        self.state[name] = {k: torch.rand(whole.shape) for k in ("exp_avg", "exp_avg_sq", "master")}
        world = self.tp * (self.exp if experts else 1)
        for e in range(self.exp if experts else 1):
            for t in range(self.tp):
                meta, local, pieces = {}, whole, [(0, whole.shape[0], 0)]
                suffix = ""
                if cut is not None:
                    rank, pieces, at, begin = e * self.tp + t, [], 0, 0
                    for size in parts or [whole.shape[cut]]:
                        n = size // world
                        pieces.append((at, n, begin + rank * n))
                        at, begin = at + n, begin + size
                    local = torch.cat([whole.narrow(cut, g, n) for _, n, g in pieces], cut).contiguous()
                    pairs = []
                    for at, n, g in pieces:
                        both = [[(None, None)] * whole.dim() for _ in range(2)]
                        both[0][cut], both[1][cut] = (at, at + n), (g, g + n)
                        pairs.append("#".join(slices_text(s) for s in both))
                    meta = {"version": "1.4", "local_global_slices_pairs": ";".join(pairs), "unsharded_shape": str(tuple(whole.shape))}
                    suffix = f"_pp-rank-{stage}-of-{self.pp}_tp-rank-{t}-of-{self.tp}"
                    suffix += f"_exp-rank-{e}-of-{self.exp}" if experts and self.exp > 1 else ""
                save_file({"data": local.clone()}, str(folder / f"model_{leaf}{suffix}.safetensors"), meta)
                for rank in [e] if experts else range(self.exp):
                    self.local.setdefault((stage, rank, t), []).append((name, cut, pieces))

    def shard(self, whole, cut, pieces):
        return whole if cut is None else torch.cat([whole.narrow(cut, g, n) for _, n, g in pieces], cut).contiguous()

    def optimizer(self, zero):
        folder = self.step / "optimizer"
        folder.mkdir()
        offsets, shapes = {}, {}
        for (stage, e, t), held in self.local.items():
            for d in range(self.dp if zero else 1):
                state, names, masters, params = {}, {}, {}, []
                for name, cut, pieces in held:
                    local = {k: self.shard(v, cut, pieces) for k, v in self.state[name].items()}
                    if zero:
                        numel = local["exp_avg"].numel()
                        sizes = [numel // self.dp + (r < numel % self.dp) for r in range(self.dp)]
                        begin = sum(sizes[:d])
                        shapes["module." + name] = [str(x) for x in local["exp_avg"].shape]
                        if sizes[d] == 0:
                            continue
                        offsets.setdefault("module." + name, {})[str(d)] = [str(begin), str(begin + sizes[d])]
                        local = {k: v.reshape(-1)[begin:begin + sizes[d]].clone() for k, v in local.items()}
                    number = len(names)
                    names[number] = "module." + name
                    masters["module." + name] = local.pop("master").clone()
                    state[number] = {"step": torch.tensor(30.0), **{k: v.clone() for k, v in local.items()}}
                    params.append(number)
                name = f"optimizer_pp-{stage}-of-{self.pp}" + (f"_dp-{d}-of-{self.dp}" if zero else "")
                name += f"_tp-{t}-of-{self.tp}_exp-{e}-of-{self.exp}.pt"
                torch.save({"state": state, "param_groups": [{"lr": 0.001, "betas": [0.9, 0.95], "params": params}], "names": names,
                            "gradient_accumulator": masters}, str(folder / name))
        config = {"type": "ZeroDistributedOptimizer" if zero else "OptimizerFromGradientAccumulator",
                  "parallelism": {"tp_size": str(self.tp), "dp_size": str(self.dp), "pp_size": str(self.pp), "expert_parallel_size": str(self.exp)}, "configs": {}}
        if zero:
            config["configs"] = {"param_name_to_dp_rank_offsets": offsets, "orig_param_shapes": shapes}
        (folder / "optimizer_config.json").write_text(json.dumps(config))
        for name in self.state:
            for key in ("exp_avg", "exp_avg_sq"):
                self.tensors[f"optimizer.state.{name}.{key}"] = entry(self.state[name][key])
            self.tensors[f"optimizer.state.{name}.step"] = entry(torch.tensor(30.0))
            self.tensors[f"optimizer.gradient_accumulator.{name}"] = entry(self.state[name]["master"])
        for folder, order in (("lr_scheduler", ("pp", "dp", "tp", "exp")), ("random", ("tp", "dp", "pp"))):
            (self.step / folder).mkdir()
            sizes = {"pp": self.pp, "dp": self.dp, "tp": self.tp, "exp": self.exp}
            ranks = [{}]
            for axis in order:
                ranks = [{**r, axis: i} for r in ranks for i in range(sizes[axis])]
            for r in ranks:
                if folder == "lr_scheduler" and not zero and r["dp"] > 0:
                    continue
                axes = [a for a in order if zero or a != "dp" or folder == "random"]
                name = "_".join(f"{a}-{r[a]}-of-{sizes[a]}" for a in axes)
                value = {"last_epoch": 30, "_step_count": 31} if folder == "lr_scheduler" else {"torch_random_state": torch.zeros(8, dtype=torch.uint8)}
                torch.save(value, str(self.step / folder / ((folder + "_" if folder == "lr_scheduler" else "") + name + ".pt")))

    def save(self, zero=None, drop=(), **more):
        if zero is not None:
            self.optimizer(zero)
        (self.step / "config.yaml").write_text("general:\n  step: 30\n")
        meta = {"version": "1.4", "tp": self.tp, "dp": self.dp, "cp": 1, "custom_metas": None,
                "metas": {"consumed_train_samples": 960, "last_train_step": 30, "last_stage_idx": 0, "data_stages": []}}
        (self.step / "checkpoint_metadata.json").write_text(json.dumps(meta))
        (self.step / "model_config.json").write_text(json.dumps({"hidden_size": H}))
        for name in drop:
            (self.step / name).unlink()
        dims = [(n, s) for n, s in (("ep", self.exp), ("pp", self.pp), ("dp", self.dp), ("tp", self.tp)) if s > 1]
        world = self.pp * self.dp * self.tp * self.exp
        expected = {"about": self.place.name, "framework": "by hand", "format": "nanotron", "world_size": world,
                    "mesh": {"dims": [n for n, _ in dims], "shape": [s for _, s in dims]}, "tensors": self.tensors,
                    "objects": {"lr_scheduler.last_epoch": 30} if zero is not None else {}, **more}
        (self.place / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def model(case):
    bf16 = lambda *shape: torch.randn(*shape).bfloat16()
    last = case.pp - 1
    case.put("model.token_position_embeddings.pp_block.token_embedding.weight", bf16(VOCAB, H), 0, 0)
    for layer in range(2):
        stage, p = layer * case.pp // 2, f"model.decoder.{layer}.pp_block."
        case.put(p + "input_layernorm.weight", bf16(H), stage)
        case.put(p + "attn.qkv_proj.weight", bf16(H + 8, H), stage, 0, [H, 4, 4])
        case.put(p + "attn.o_proj.weight", bf16(H, H), stage, 1)
        case.put(p + "mlp.gate_up_proj.weight", bf16(2 * FFN, H), stage, 0, [FFN, FFN])
        case.put(p + "mlp.down_proj.weight", bf16(H, FFN), stage, 1)
        if case.exp > 1:
            case.put(p + "mlp.experts.weight", bf16(H, 2 * FFN), stage, 1, experts=True)
    case.put("model.final_layer_norm.pp_block.weight", bf16(H), last)
    case.put("model.lm_head.pp_block.weight", bf16(VOCAB, H), last, 0)
    return case


def main():
    out = sys.argv[1]
    torch.manual_seed(7)
    model(Case(out, "tp2", tp=2)).save(zero=False)
    model(Case(out, "tp2-pp2-zero1", tp=2, pp=2, dp=2)).save(zero=True)
    model(Case(out, "ep2-tp2", tp=2, exp=2)).save()
    model(Case(out, "single")).save(zero=False)
    lost = "model/model/decoder/0/pp_block/mlp/down_proj/model_weight_pp-rank-0-of-1_tp-rank-1-of-2.safetensors"
    model(Case(out, "bad-rank-lost", tp=2)).save(drop=[lost], findings=[{"kind": "missing-file", "file": lost}])
    lost = "optimizer/optimizer_pp-0-of-1_dp-1-of-2_tp-0-of-2_exp-0-of-1.pt"
    model(Case(out, "bad-zero-rank-lost", tp=2, dp=2)).save(zero=True, drop=[lost], findings=[{"kind": "missing-file", "file": lost}])
    lost = "checkpoint_metadata.json"
    model(Case(out, "bad-not-committed", tp=2)).save(drop=[lost], findings=[{"kind": "missing-file", "file": lost}])


if __name__ == "__main__":
    main()

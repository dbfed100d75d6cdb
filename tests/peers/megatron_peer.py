"""Megatron-Core loads what we write: torch_dist, zarr and mp_rank_* directories that megatron-core 0.8 to 0.16 saved, and one that it saves
here, are converted to torch_dist, and real GPTModels with distributed optimizers load the result on other tensor, pipeline, data and
expert-parallel ranks (gloo, on the CPU) with every key accounted for (raise_all). Weights, masters and moments are equal bit for bit, so
is what another step makes of them, and so is the loss of a batch within the rounding of other sums."""
import contextlib
import json
import os
import re
import shutil
import sys
import tempfile

from peercommon import DATA, shardscope

sys.path.insert(0, os.path.join(DATA, "scripts"))
os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.argv = sys.argv[:1]
import torch  # noqa: E402

import megatron_on_cpu  # noqa: E402

import make_megatron as mm  # noqa: E402  # its models, and stubs for what Megatron asks of CUDA
import ranklib  # noqa: E402
from megatron.core import dist_checkpointing, parallel_state  # noqa: E402
from megatron.core.dist_checkpointing import mapping  # noqa: E402
from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer  # noqa: E402
from megatron.core.tensor_parallel import random  # noqa: E402

mm.V, mm.dc, mm.ps = (0, 16), dist_checkpointing, parallel_state
for name in ("LocalNonpersistentObject", "ShardedObject", "ShardedTensor", "ShardedTensorFactory"):
    setattr(mm, name, getattr(mapping, name))

random.CudaRNGStatesTracker.fork = lambda self, *name: contextlib.nullcontext()
ranklib.AT_END.append(megatron_on_cpu.leave)


def set_states(self, parameter, tensors, inner=DistributedOptimizer._set_main_param_and_optimizer_states):
    """Core 0.16 expects no step of single parameters, which the Adam of torch has, and that of the GPU has not."""
    there = self._get_main_param_and_optimizer_states(parameter)
    inner(self, parameter, dict(tensors, **{k: there[k] for k in there if k == "step"}))


DistributedOptimizer._set_main_param_and_optimizer_states = set_states

NEAR = 1e-5
NORM = {"cfg_kw": {"normalization": "LayerNorm"}}
GPT2 = {"L": 2, "groups": 4, "llama": False, "tied": True, "pos": "learned_absolute", "vocab": 32}

# case, model, optimizer, then how it is loaded: (tp, pp, dp, further words)
CASES = [
    ("m0.12.3-optim-flat-tp2dp2", dict(bf16=True, **NORM), "distributed", [(1, 2, 2, {}), (2, 2, 1, {})]),
    ("m0.15.3-optim-flat-pp2dp2", dict(bf16=True, tied=True), "distributed", [(2, 1, 2, {}), (1, 1, 2, {})]),
    ("m0.16.1-optim-dp-reshardable-tp2dp2", dict(bf16=True, L=1, h=16, ffn=16, vocab=16), "distributed", [(1, 1, 3, {"words": ["--buckets", "parameters"]})]),
    ("m0.16.1-moe-ep2", dict(experts=2, bf16=True, ffn=16), "distributed", [(1, 2, 1, {}), (1, 1, 2, {"ep": 2})]),
    ("m0.16.1-legacy-tp2", dict(bf16=True), "float16", [(1, 2, 1, {}), (1, 1, 2, {})]),
    ("m0.16.1-legacy-tp2pp2dp2", dict(L=4, bf16=True, ffn=16), "distributed", [(1, 2, 1, {}), (2, 1, 2, {})]),
    ("m0.8.0-zarr-tp2pp2", dict(L=2, bf16=True, ffn=16, **NORM), None, [(1, 2, 1, {"words": ["--exclude", "extra.fp32"]})]),
    ("m0.8.0-gpt-tp2", dict(**NORM), None, [(1, 2, 1, {})]),
    ("m0.16.1-gpt-tp2pp2-qwen", dict(L=4, qkv_bias=True, vocab=40), None, [(1, 2, 1, {"vpp": 2}), (1, 1, 1, {})]),
    ("m0.16.1-gpt2-tp2pp2-tied", GPT2, None, [(1, 1, 1, {}), (1, 2, 1, {})]),
    ("m0.16.1-gpt-non-homogeneous", {}, None, [(1, 2, 1, {})]),
    ("m0.16.1-gpt-singleton-shards", {}, None, [(1, 2, 1, {})]),
]


# ------------------------------------------------------------------ in a rank

def other_values(tensors):
    with torch.no_grad():
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                tensor.fill_(0.375)


def built(c, about, kind, tp, pp, more):
    cfg, chunks = mm.gpt(c, tp=tp, pp=pp, ep=more.get("ep", 1), vpp=more.get("vpp"), **about)
    c.extra.clear()
    if kind is None:
        return chunks, None
    _, opt = mm.optimizer(c, cfg, chunks, kind == "distributed", about.get("bf16", False))
    return chunks, opt


def model_states(chunks, meta):
    return {"model" if len(chunks) == 1 else "model%d" % i: m.sharded_state_dict(metadata=meta) for i, m in enumerate(chunks)}


def load(c, place, about, kind, tp, pp, more):
    chunks, opt = built(c, about, kind, tp, pp, more)
    for m in chunks:
        other_values(m.parameters())
    for one in getattr(opt, "chained_optimizers", [opt] if opt else []):
        for state in one.optimizer.state.values():
            other_values(v for k, v in state.items() if k != "step")
        for group in one.optimizer.param_groups:
            other_values(group["params"])
    common = dist_checkpointing.load_common_state_dict(place)
    meta = dict(dist_checkpointing.load_content_metadata(preloaded_state_dict=common) or {})
    meta["dp_cp_group"] = parallel_state.get_data_parallel_group(with_context_parallel=True)
    wanted = model_states(chunks, meta)
    if opt is not None:
        wanted["optimizer"] = opt.sharded_state_dict(wanted, is_loading=True, **({"metadata": meta} if kind == "distributed" else {}))
    state = dist_checkpointing.load(wanted, place, strict="raise_all")
    for i, m in enumerate(chunks):
        m.load_state_dict(state["model" if len(chunks) == 1 else "model%d" % i])
    if opt is not None:
        opt.load_state_dict(state["optimizer"])
    if "step" in more:
        train_on(opt)
    args = state.get("args")
    if args is not None:
        assert (args.tensor_model_parallel_size, args.pipeline_model_parallel_size, args.world_size) == (tp, pp, c.world), args
        assert args.no_save_rng and getattr(args, "no_save_optim", False) == (opt is None), args
    # What the rank has now, and not what it was given.
    now = model_states(chunks, meta)
    if opt is not None:
        now["optimizer"] = opt.sharded_state_dict(now, **({"metadata": meta} if kind == "distributed" else {}))
        now["optimizer"].pop("param_state_sharding_type", None) if isinstance(now["optimizer"], dict) else None
    mm.expect(c, now)
    c.extra = {}
    if "loss" in more:
        c.extra["loss"] = loss(chunks)


def loss(chunks):
    """Of one batch, in fp32: bf16 rounds the sums of other ranks in other ways."""
    model = chunks[0].float().eval()
    for module in model.modules():
        if hasattr(module, "input_in_float16"):
            module.input_in_fp16 = module.input_in_bf16 = module.input_in_float16 = False
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(0, 32, (2, 8), generator=generator)
    wanted = torch.randint(0, 32, (2, 8), generator=generator)
    places = torch.arange(8).repeat(2, 1)
    mask = torch.ones(2, 1, 8, 8).triu(1).bool()
    with torch.no_grad():
        return float(model(tokens, places, mask, labels=wanted).mean())


def train_on(opt):
    """One more step of each optimizer, with gradients that depend on the masters only: on any ranks the same values come of it."""
    for one in getattr(opt, "chained_optimizers", [opt]):
        for group in one.optimizer.param_groups:
            for parameter in group["params"]:
                state = one.optimizer.state[parameter]
                state["step"] = state["step"].clone()  # loaded ones are one tensor, which each parameter would count up
                parameter.grad = (0.25 * parameter.detach() - 0.01).to(parameter.dtype)
        one.optimizer.step()


def trained(c, about, kind, tp, pp):
    chunks, opt = built(c, about, kind, tp, pp, {})
    train_on(opt)
    meta = mm.dpmeta("fully_reshardable")
    now = model_states(chunks, meta)
    now["optimizer"] = opt.sharded_state_dict(now, metadata=meta)
    mm.expect(c, now)
    c.extra = {}


def load_ranks(c, place, about, kind, tp, pp):
    """What Megatron loads of mp_rank_* directories on the ranks that saved them, as shards."""
    chunks, opt = built(c, about, kind, tp, pp, {})
    directory = "mp_rank_%02d" % parallel_state.get_tensor_model_parallel_rank()
    if pp > 1:
        directory += "_%03d" % parallel_state.get_pipeline_model_parallel_rank()
    saved = torch.load(os.path.join(place, directory, "model_optim_rng.pt"), weights_only=False)
    chunks[0].load_state_dict(saved["model"])
    opt.load_state_dict(saved["optimizer"])
    if kind == "distributed":
        opt.load_parameter_state(os.path.join(place, directory, "distrib_optim.pt"))
    meta = dict(mm.dpmeta("fully_reshardable"), non_homogeneous_layers=True)
    now = model_states(chunks, meta)
    now["optimizer"] = opt.sharded_state_dict(now, **({"metadata": meta} if kind == "distributed" else {}))
    mm.expect(c, now)
    c.extra = {}


def save(c, place, about, kind, tp, pp):
    chunks, opt = built(c, about, kind, tp, pp, {})
    meta = mm.dpmeta("fully_reshardable")
    mm.save(c, mm.full_sd(c, chunks, opt, tp=tp, pp=pp, meta=meta, okw=dict(metadata=meta)), where=place, content_metadata=mm.clean(meta))
    c.extra = {"loss": loss(chunks)}


# ------------------------------------------------------------------ outside

def run(place, name, seed, world, fn):
    """Runs fn in each rank; returns what they have all together."""
    case = dict(name=name, seed=seed, about=name, world=world, fn=fn)
    failed = ranklib.run_case(case, place, "megatron")
    if failed != "ok":
        raise AssertionError(failed[-3000:])
    with open(os.path.join(place, name, "expected.json"), encoding="utf-8") as f:
        return json.load(f)


def truth_of(expected):
    tensors = {n: t for n, t in expected["tensors"].items() if ".bucket_idx_" not in n and n != "extra.fp32"}
    tensors.update(expected.get("resolved", {}))
    return {n.replace(".fp32_param.", ".param."): t for n, t in tensors.items()}


def check(place, name, source, want, seed, about, kind, load_on):
    tp, pp, dp, more = load_on
    ep = more.get("ep", 1)
    out = os.path.join(place, "out-%s-%d%d%d%d" % (name, tp, pp, dp, ep))
    words = ["convert", source, out, "--to", "megatron", "--mesh", "pp=%d,dp=%d,ep=%d,tp=%d" % (pp, dp // ep, ep, tp)]
    shardscope(*words, *more.get("words", []))
    got = run(place, "loaded", seed, tp * pp * dp, lambda c: load(c, out, about, kind, tp, pp, more))
    shutil.rmtree(out)
    compared = 0
    now = {n.replace(".fp32_param.", ".param."): t for n, t in got["tensors"].items()}
    for key, tensor in want.items():
        assert key in now, "%s was not loaded; there are %s" % (key, sorted(now)[:60])
        assert (now[key]["sha256"], now[key]["shape"], now[key]["dtype"]) == (tensor["sha256"], tensor["shape"], tensor["dtype"]), key
        compared += 1
    extra = set(now) - set(want)
    return compared, extra, got.get("loss")


def step_of(case):
    place = os.path.join(DATA, "genuine", "megatron", case, "ckpt")
    steps = [s for s in os.listdir(place) if s.startswith("iter_")]
    return os.path.join(place, steps[0]) if steps else place


def main():
    failures = done = tensors = 0
    with tempfile.TemporaryDirectory() as place:
        jobs = []
        for case, about, kind, loads in CASES:
            source = step_of(case)
            ranks = [d for d in os.listdir(source) if d.startswith("mp_rank_")]
            if ranks:
                tp = len(set(d[:10] for d in ranks))
                pp = len(ranks) // tp
                expected = run(place, "ranks", case, len(ranks), lambda c: load_ranks(c, source, about, kind, tp, pp))
            else:
                with open(os.path.join(DATA, "genuine", "megatron", case, "expected.json"), encoding="utf-8") as f:
                    expected = json.load(f)
            jobs.append((case, source, truth_of(expected), about, kind, loads, None))
        about = dict(bf16=True, L=2)
        saved = os.path.join(place, "saved")
        want = run(place, "source", "source", 4, lambda c: save(c, saved, about, "distributed", 2, 1))
        jobs.append(("saved here", saved, truth_of(want), about, "distributed", [(1, 1, 2, {"loss": True}), (2, 1, 1, {"loss": True})], want["loss"]))
        later = run(place, "later", "source", 4, lambda c: trained(c, about, "distributed", 2, 1))
        jobs.append(("saved here, and trained on", saved, truth_of(later), about, "distributed", [(1, 2, 1, {"step": True}), (1, 1, 3, {"step": True})], None))
        # Through a recipe: Hugging Face's names, and Megatron's again.
        hf, sizes = os.path.join(place, "hf"), ["--set", "heads=4", "--set", "kv_heads=2"]
        case = "m0.16.1-gpt-non-homogeneous"
        shardscope("convert", step_of(case), hf, "--to", "safetensors", "--map", "llama-hf-from-megatron", "--weights-only", *sizes)
        words = {"words": ["--map", "llama-megatron-from-hf", *sizes]}
        jobs.append(("Hugging Face", hf, next(j[2] for j in jobs if j[0] == case), {}, None, [(1, 2, 1, words), (2, 1, 1, words)], None))
        for case, source, want, about, kind, loads, loss_before in jobs:
            for load_on in loads:
                title = "%s on tp%d pp%d dp%d %s" % ((case,) + load_on[:3] + (" ".join("%s=%s" % x for x in load_on[3].items() if x[0] in ("ep", "vpp")),))
                try:
                    compared, extra, loss_now = check(place, re.sub(r"\W", "-", case), source, want, case, about, kind, load_on)
                    if loss_before is not None:
                        assert 2 < loss_before < 9 and abs(loss_now - loss_before) <= NEAR, "the loss is %s, and was %s" % (loss_now, loss_before)
                    assert not extra, sorted(extra)
                    tensors += compared
                    done += 1
                    print("%s: %d tensors equal%s" % (title, compared, "" if loss_before is None else ", loss within %.1e" % abs(loss_now - loss_before)), flush=True)
                except Exception as error:  # one failing case must not hide the others
                    failures += 1
                    print("FAIL %s: %s" % (title, error), flush=True)
    print("%d loads by megatron-core, %d tensors equal, %d failures" % (done, tensors, failures))
    return 1 if failures or not tensors else 0


if __name__ == "__main__":
    raise SystemExit(main())

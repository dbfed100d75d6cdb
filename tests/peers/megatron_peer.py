"""Megatron-Core loads what we write: torch_dist, zarr and mp_rank_* directories that megatron-core 0.8 to 0.16 saved, and one that it saves
here, are converted to torch_dist, and real GPTModels with distributed optimizers load the result on other tensor, pipeline, data and
expert-parallel ranks (gloo, on the CPU) with every key accounted for (raise_all). Weights, masters and moments are equal bit for bit, so
is what another step makes of them, and so is the loss of a batch within the rounding of other sums. So is what goes by way of a checkpoint of Megatron-FSDP."""
import contextlib
import json
import os
import re
import shutil
import sys
import tempfile
import zlib

from peercommon import DATA, shardscope

sys.path.insert(0, os.path.join(DATA, "scripts"))
os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.argv = sys.argv[:1]
import torch  # noqa: E402

import megatron_on_cpu  # noqa: E402

import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import DTensor, Shard  # noqa: E402

import make_megatron as mm  # noqa: E402  # its models, and stubs for what Megatron asks of CUDA
import ranklib  # noqa: E402
from megatron.core import dist_checkpointing, parallel_state  # noqa: E402
from megatron.core.dist_checkpointing import mapping  # noqa: E402
from megatron.core.distributed.fsdp.src.megatron_fsdp.uneven_dtensor import preprocess_state_dict_for_uneven_dtensor  # noqa: E402
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


def save(c, place, about, kind, tp, pp, rounded=False):
    chunks, opt = built(c, about, kind, tp, pp, {})
    for one in getattr(opt, "chained_optimizers", [opt]) if rounded else ():  # weights are the masters, rounded
        one._copy_main_params_to_model_params()
        for m in one.model_chunks:
            m.start_param_sync(force_sync=True)
    meta = mm.dpmeta("fully_reshardable")
    mm.save(c, mm.full_sd(c, chunks, opt, tp=tp, pp=pp, meta=meta, okw=dict(metadata=meta)), where=place, content_metadata=mm.clean(meta))
    c.extra = {"loss": loss(chunks)}


def through_fsdp(c, place, onto, about):
    """Loads a checkpoint of Megatron-FSDP as it does, by the names of a real model into DTensors with uneven rows, every one of which has to be
    there; and saves them as it does. Megatron-FSDP itself wants a GPU."""
    chunks, opt = built(c, about, "distributed", 1, 1, {})
    (opt,) = getattr(opt, "chained_optimizers", [opt])
    mesh = init_device_mesh("cpu", (c.world,), mesh_dim_names=("dp_cp",))

    def rows(name, shape):
        """Nothing but rows of its own on each rank, none on some."""
        ends = sorted(zlib.crc32(b"%d" % i + name.encode()) % (shape[0] + 1) for i in range(c.world - 1))
        first, last = ([0] + ends)[c.rank], (ends + [shape[0]])[c.rank]
        local = torch.full((last - first, *shape[1:]), 0.375)
        return DTensor.from_local(local, mesh, [Shard(0)], run_check=False, shape=torch.Size(shape), stride=torch.empty(shape).stride())

    model, state, settings = {}, {}, {}
    groups = {id(p): i for i, group in enumerate(opt.model_float16_groups) for p in group}
    fields = {name for group in opt.param_groups for name in group} - {"params"}
    names = {name.removeprefix("module."): p for name, p in chunks[0].named_parameters()}
    for name, p in names.items():
        gated = name.endswith("linear_fc1.weight")
        for part in (name + "_w", name + "_v") if gated else (name,):
            shape = [p.shape[0] // 2 if gated else p.shape[0], *p.shape[1:]]
            model["module." + part] = rows(part, shape)
            state["module.module.module." + part] = {kind: rows(part + kind, shape) for kind in ("exp_avg", "exp_avg_sq")}
        settings["module.module.module." + name] = dict.fromkeys(fields)
    sd = {"args": None, "iteration": None, "checkpoint_version": None, "opt_param_scheduler": dict.fromkeys(("max_lr", "num_steps")), "model": model,
          "optimizer": {"state": state, "param_to_group_meta": settings}}
    preprocess_state_dict_for_uneven_dtensor(sd)
    dcp.load(sd, storage_reader=dcp.FileSystemReader(place))
    assert sd["iteration"] == 10 and sd["args"].num_layers == 2, sd["iteration"]
    mine_alone = {name: p for name, p in names.items() if id(p) in groups}  # of which this rank has a part
    assert mine_alone
    for name, p in mine_alone.items():
        mine = sd["optimizer"]["param_to_group_meta"]["module.module.module." + name]
        theirs = opt.param_groups[groups[id(p)]]
        assert all(mine[f] == theirs[f] for f in fields), (name, mine, theirs)
    if c.rank == 0:
        os.makedirs(onto)
    torch.distributed.barrier()
    dcp.save(sd, storage_writer=dcp.FileSystemWriter(onto))
    c.extra = {}


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
        # Through a checkpoint of Megatron-FSDP, and back.
        rounded, fsdp, fsdp_saved = (os.path.join(place, name) for name in ("rounded", "fsdp", "fsdp-saved"))
        want = run(place, "source", "source", 4, lambda c: save(c, rounded, about, "distributed", 2, 1, True))
        shardscope("convert", rounded, fsdp, "--to", "megatron", "--variant", "fsdp_dtensor", "--map", "fsdp-dtensor-names", "--set", "fused_norms=0",
                   "--master-weights", "use", "--mesh", "dp=2")
        run(place, "through", "source", 3, lambda c: through_fsdp(c, fsdp, fsdp_saved, about))
        words = {"words": ["--map", "torch-dist-names", "--set", "stacked=1"]}
        jobs.append(("Megatron-FSDP", fsdp_saved, truth_of(want), about, "distributed", [(1, 2, 1, words), (2, 1, 2, words)], None))
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

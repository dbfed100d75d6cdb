"""Universal checkpoints that we write, loaded by DeepSpeed: two gloo ranks train and save with ZeRO 2 or 3, we convert, and other
ranks and stages load the result with load_universal: masters and moments bit for bit, and the next losses are those of the run
that was never interrupted."""
import json
import os
import sys
import tempfile
import traceback
import warnings

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("DEEPSPEED_LOG_LEVEL", "error")
warnings.simplefilter("ignore")

from forked_ranks import forked_ranks  # noqa: E402

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../python"))
from pages import block_with  # noqa: E402

BEFORE, AFTER = 3, 3  # steps up to the save and behind it
BATCH = 6  # samples of one step, of all ranks together
NEAR = 1e-5

# name, how it is trained, how it is loaded: (stage, ranks, words for the conversion)
CASES = [
    ("ZeRO 2, fp32", {"stage": 2, "dtype": "fp32", "groups": 2}, [(2, 3, []), (1, 1, []), (2, 2, [])]),
    ("ZeRO 2, fp32, one group", {"stage": 2, "dtype": "fp32", "groups": 1}, [(3, 3, []), (3, 1, [])]),
    ("ZeRO 3, fp32", {"stage": 3, "dtype": "fp32", "groups": 1}, [(3, 3, []), (3, 1, []), (2, 3, []), (2, 1, [])]),
    ("ZeRO 2, bf16", {"stage": 2, "dtype": "bf16", "groups": 2}, [(2, 2, []), (2, 3, []), (2, 1, [])]),
    ("ZeRO 3, bf16", {"stage": 3, "dtype": "bf16", "groups": 1}, [(3, 2, []), (3, 3, []), (2, 1, [])]),
    ("BF16_Optimizer", {"stage": 1, "dtype": "bf16", "groups": 2, "fp32_gradients": True}, [(1, 2, []), (1, 3, [])]),
]
# Without masters: the weights of fp32 training are the masters; nothing of the states is lost.
VIA = [
    ("by way of DCP", {"stage": 2, "dtype": "fp32", "groups": 1}, ["--to", "dcp", "--exclude", "*.fp32"], [(2, 3, []), (3, 2, [])]),
    ("by way of torch.save", {"stage": 3, "dtype": "fp32", "groups": 1}, ["--to", "torch", "--exclude", "*.fp32"], [(2, 3, [])]),
]


# ------------------------------------------------------------------ one rank

def model(torch):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(11, 6)
            self.lower = torch.nn.Linear(6, 7)
            self.norm = torch.nn.LayerNorm(7)
            self.upper = torch.nn.Linear(7, 11, bias=False)
            self.scale = torch.nn.Parameter(torch.tensor(1.25))
            self.frozen = torch.nn.Parameter(torch.linspace(-1, 1, 7), requires_grad=False)
            self.register_buffer("seen", torch.tensor((1 << 40) + 1))

        def forward(self, tokens):
            x = self.lower(self.embed(tokens))
            return self.upper(torch.nn.functional.gelu(self.norm(x)) + self.frozen.to(x.dtype)) * self.scale.to(x.dtype)

    torch.manual_seed(17)
    return Net()


def batch(torch, step, rank, world):
    generator = torch.Generator().manual_seed(1000 + step)
    tokens = torch.randint(0, 11, (BATCH, 5), generator=generator)
    wanted = torch.randint(0, 11, (BATCH, 5), generator=generator)
    part = BATCH // world
    return tokens[rank * part:(rank + 1) * part], wanted[rank * part:(rank + 1) * part]


def states(torch, engine):
    """Masters and moments of all parameters, as DeepSpeed gathers them."""
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
    optimizer = engine.optimizer
    flat = getattr(optimizer, "single_partition_of_fp32_groups", None) or getattr(optimizer, "fp32_groups_flat_partition", None)
    groups = getattr(optimizer, "bit16_groups", None) or getattr(optimizer, "bf16_groups", None)
    # DeepSpeed links the moments after the step of the first group, when later groups have none yet.
    for parameters, whole in zip(groups or [], flat or []):
        for parameter in parameters:
            if parameter._hp_mapping is not None and not parameter._hp_mapping.optim_fragment:
                parameter._hp_mapping.set_optim_state_fragment(whole, optimizer.optimizer.state[whole])
    found = {}
    for name, parameter in engine.module.named_parameters():
        if parameter.requires_grad:
            found[name] = {"fp32": safe_get_full_fp32_param(parameter)}
            for key in ("exp_avg", "exp_avg_sq"):
                found[name][key] = safe_get_full_optimizer_state(parameter, key)
            found[name] = {k: v.detach().float().reshape(-1).clone() for k, v in found[name].items()}
    return found


def worker(job):
    import deepspeed
    import torch
    import peercommon  # noqa: F401
    from make_deepspeed import prepare
    prepare(deepspeed)  # what it takes on a CPU
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # it would compile one first
    torch.set_num_threads(1)
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    net = model(torch)
    page = block_with("docs/formats/deepspeed.md", "load_universal").splitlines()  # what users are told to write
    if job.get("load"):
        with torch.no_grad():
            for parameter in net.parameters():
                if parameter.requires_grad:
                    parameter.add_(0.5)
    trained = [p for p in net.parameters() if p.requires_grad]
    groups = [{"params": trained, "weight_decay": 0.01}]
    if job["groups"] == 2:
        groups = [{"params": [p for p in trained if p.ndim > 1], "weight_decay": 0.1},
                  {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1.0 if job.get("load") else 1e-3)
    config = {"train_micro_batch_size_per_gpu": BATCH // world, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
              "zero_optimization": {"stage": job["stage"], "reduce_bucket_size": 10000},
              "zero_allow_untested_optimizer": True, "steps_per_print": 10 ** 9}
    if job["stage"] == 3:
        config["zero_optimization"]["stage3_prefetch_bucket_size"] = 10000
    if job["dtype"] == "bf16":
        config["bf16"] = {"enabled": True}
    if job.get("fp32_gradients"):
        config["data_types"] = {"grad_accum_dtype": "fp32"}
    if job.get("load"):
        exec(page[0], {"config": config})
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 / (1 + step / 10))
    engine, _, _, _ = deepspeed.initialize(model=net, optimizer=optimizer, lr_scheduler=scheduler, config=config, dist_init_required=False)
    first = 0
    said = {}
    if job.get("load"):
        if job["scheduler"]:
            path, client = eval(page[1].replace('"DST"', repr(job["load"])), {"engine": engine})
        else:
            path, client = engine.load_checkpoint(job["load"], load_lr_scheduler_states=False)
        assert path is not None, "load_checkpoint returned None"
        first = BEFORE
        said = {"steps": engine.global_steps, "client": client.get("epoch")}
        torch.save(states(torch, engine), job["states"]) if rank == 0 else states(torch, engine)
    losses = []
    for step in range(first, BEFORE + AFTER):
        if step == BEFORE and not job.get("load"):
            engine.save_checkpoint(job["save"], client_state={"epoch": 7})
            now = states(torch, engine)
            if rank == 0:
                torch.save(now, job["states"])
        tokens, wanted = batch(torch, step, rank, world)
        loss = torch.nn.functional.cross_entropy(engine(tokens).float().reshape(-1, 11), wanted.reshape(-1))
        whole = loss.detach().clone()
        torch.distributed.all_reduce(whole)
        losses.append(whole.item() / world)
        engine.backward(loss)
        engine.step()
    if rank == 0:
        with open(job["losses"], "w", encoding="utf-8") as f:
            json.dump({"losses": losses[-AFTER:], **said}, f)
    torch.distributed.barrier()


# ------------------------------------------------------------------ all of them

def ranks(count, job):
    forked_ranks(count, lambda: worker(job), 240)
    with open(job["losses"], encoding="utf-8") as f:
        return json.load(f)


def train(place, about):
    return ranks(2, dict(about, save=os.path.join(place, "saved"), states=os.path.join(place, "states"), losses=os.path.join(place, "losses")))


def check(place, about, source, want, stage, world, words, complete):
    """Converts `source` and loads it. Returns how many tensors were equal and the largest distance of a loss."""
    import torch
    from peercommon import shardscope
    out = os.path.join(place, "universal-%d-%d" % (stage, world))
    shardscope("convert", source, out, "--to", "deepspeed", *words)
    states_file = os.path.join(place, "loaded")
    job = dict(about, stage=stage, load=out, scheduler=complete, states=states_file, losses=os.path.join(place, "losses-loaded"))
    if about.get("fp32_gradients") and stage != 1:
        del job["fp32_gradients"]
    got = ranks(world, job)
    now, before = torch.load(states_file), torch.load(os.path.join(place, "states"))
    assert set(now) == set(before), set(now) ^ set(before)
    compared = 0
    for name, all_states in before.items():
        for key, tensor in all_states.items():
            assert torch.equal(now[name][key], tensor), "%s of %s differs" % (key, name)
            compared += 1
    if complete:
        assert got["steps"] == BEFORE, got
        assert got["client"] == 7, got
    far = [abs(a - b) for a, b in zip(got["losses"], want["losses"])]
    # In bf16 other ranks round other sums of gradients; the first loss comes before any.
    same = about["dtype"] == "fp32" or world == 2
    counted = far if same else far[:1]
    # ZeRO 3 has a linear layer of its own, which rounds once more.
    limit = 1e-3 if about["dtype"] == "bf16" and (about["stage"] == 3) != (stage == 3) else NEAR
    assert len(got["losses"]) == AFTER and max(counted) <= limit, "losses %s, wanted %s" % (got["losses"], want["losses"])
    return compared, max(counted)


def main():
    # All that the ranks import, before they are forked.
    import deepspeed.runtime.zero.muon.muon_optimizer  # noqa: F401
    import torch._dynamo  # noqa: F401
    from peercommon import shardscope
    failures = done = tensors = 0
    worst = 0.0
    jobs = [(title, about, None, loads) for title, about, loads in CASES] + VIA
    for title, about, via, loads in jobs:
        with tempfile.TemporaryDirectory() as place:
            try:
                want = train(place, about)
                source = os.path.join(place, "saved")
                if via:
                    other = os.path.join(place, "other" + (".pt" if "torch" in via else ""))
                    shardscope("convert", source, other, *via)
                    source = other
            except Exception as error:
                failures += 1
                print("FAIL %s: %s" % (title, error))
                continue
            for stage, world, words in loads:
                name = "%s to stage %d, %d ranks" % (title, stage, world)
                try:
                    equal, far = check(place, about, source, want, stage, world, words, True)
                    tensors += equal
                    worst = max(worst, far if about["dtype"] == "fp32" else 0.0)
                    done += 1
                    print("%s: %d tensors equal, losses within %.1e" % (name, equal, far), flush=True)
                except Exception as error:  # one failing case must not hide the others
                    failures += 1
                    print("FAIL %s: %s" % (name, error), flush=True)
                    if not isinstance(error, AssertionError):
                        traceback.print_exc(limit=3)
    print("%d universal checkpoints loaded by DeepSpeed, %d tensors equal, losses of fp32 within %.1e, %d failures" % (done, tensors, worst, failures))
    return 1 if failures or not tensors else 0


if __name__ == "__main__":
    raise SystemExit(main())

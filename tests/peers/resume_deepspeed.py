"""Resumes with DeepSpeed's load_checkpoint, ZeRO 2 on two gloo ranks, as it was saved."""
import os
import sys

os.environ.update(DS_ACCELERATOR="cpu", DEEPSPEED_LOG_LEVEL="error")

import deepspeed  # noqa: E402
import deepspeed.runtime.zero.muon.muon_optimizer  # noqa: E402,F401  (before the ranks are forked)
import torch  # noqa: E402
import torch._dynamo  # noqa: E402,F401
from forked_ranks import forked_ranks  # noqa: E402
from make_deepspeed import prepare  # noqa: E402

CASES = ("deepspeed-z2-2",)
STEPS = "global_step*"
RANKS = 2
CONFIG = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "bf16": {"enabled": True},
          "zero_optimization": {"stage": 2, "reduce_bucket_size": 100000, "allgather_bucket_size": 100000},
          "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}


def one_rank(step, place):
    prepare(deepspeed)  # what it takes on a CPU
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # it would compile one first
    # Over a file: a port that another test takes first would look like a step that does not resume.
    deepspeed.init_distributed(dist_backend="gloo", verbose=False, init_method="file://%s/meeting" % place, rank=int(os.environ["RANK"]), world_size=RANKS)
    model = torch.nn.Sequential(torch.nn.Linear(16, 24), torch.nn.ReLU(), torch.nn.Linear(24, 8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, lr_scheduler=scheduler, config=CONFIG, dist_init_required=False)
    run, tag = os.path.split(step)
    path, _ = engine.load_checkpoint(run, tag=tag)
    assert path is not None, "load_checkpoint gave None"
    inner = engine.optimizer.optimizer  # keyed by the parameters of this process
    groups = [{key: value for key, value in group.items() if key != "params"} for group in inner.param_groups]
    torch.save({"model": engine.module.state_dict(), "masters": list(engine.optimizer.single_partition_of_fp32_groups),
                "moments": list(inner.state.values()), "groups": groups, "scheduler": engine.lr_scheduler.state_dict(),
                "step": engine.global_steps, "samples": engine.global_samples}, os.path.join(place, os.environ["RANK"]))


def resume(case, step, scratch):
    forked_ranks(RANKS, lambda: one_rank(step, scratch), 60)
    ranks = [torch.load(os.path.join(scratch, str(rank))) for rank in range(RANKS)]
    return {"ranks": ranks, "step": ranks[0]["step"]}

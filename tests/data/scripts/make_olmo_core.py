#!/usr/bin/env python3
"""Steps that the real OLMo-core and ai2-olmo write of one small model, which make_olmo.py has not.

  make_olmo_core.py OUT olmo-core   ai2-olmo-core 3.0.0 (with what it requires), torch 2.15: save_model_and_optim_state, FSDP2 on two ranks
  make_olmo_core.py OUT local_w1    ai2-olmo 0.6.0, torch 2.1: the `local` layout of one rank

Writes OUT/CASE/ckpt and OUT/CASE/expected.json. States of the optimizers are set, not trained.
"""
import hashlib
import json
import os
import shutil
import sys

import numpy
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn

CASES = {
    "olmo-core": {
        "world": 2, "format": "dcp",
        "about": "OLMo-core's save_model_and_optim_state with flatten_optimizer_state: FSDP2 on two ranks, SkipStepAdamW with "
                 "states set by hand; its .metadata names a _StorageInfo of its own"},
    "local_w1": {
        "world": 1, "format": "olmo",
        "about": "local layout of one rank: FSDP does not shard there, and leaves parameters and their states their shapes; real "
                 "LocalShardedCheckpointer.save_checkpoint (lazy init stubbed: needs CUDA streams); LionW, states set by hand"},
}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.att_proj = nn.Linear(7, 5)
        self.norm = nn.LayerNorm(7)
        self.gate = nn.Parameter(torch.zeros(1))  # smaller than the world
        self.tiny = nn.Parameter(torch.zeros(2))


class Model(nn.Module):
    def __init__(self, case):
        super().__init__()
        self.blocks = nn.ModuleList([Block()])
        self.wte = nn.Embedding(11, 7)
        self.head = nn.Linear(7, 11, bias=False)
        random = torch.Generator().manual_seed(sum(map(ord, case)))
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=random))


def described(tensor):
    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return {"dtype": str(tensor.dtype).split(".")[1], "shape": list(tensor.shape),
            "sha256": hashlib.sha256(data).hexdigest(), "nan": 0, "inf": 0}


def states_of(parameter, adam):
    states = {"exp_avg": parameter.detach() * 0.5}
    if adam:
        states.update(exp_avg_sq=parameter.detach() * parameter.detach(), step=torch.tensor(5.0))
    return states


def expected(case, model):
    core = case == "olmo-core"
    tensors = {("model." if core else "") + name: described(value) for name, value in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        for state, value in states_of(parameter, adam=core).items():
            tensors["optim.state.%s.%s" % (name, state)] = described(value)
    objects = {"optim.param_groups.%s.%s" % (name, key): value
               for name, _ in model.named_parameters()
               for key, value in (("lr", 1e-3), ("betas", {"tuple": [0.9, 0.999]}), ("eps", 1e-8), ("weight_decay", 1e-2))}
    if not core:
        objects = {"train.global_step": 5, "metadata.world_size": 1}
    framework = "ai2-olmo-core 3.0.0" if core else "ai2-olmo 0.6.0"
    world = CASES[case]["world"]
    return {"about": CASES[case]["about"], "framework": "%s, torch %s" % (framework, torch.__version__.split("+")[0]),
            "python": sys.version.split()[0], "numpy": numpy.__version__, "format": CASES[case]["format"],
            "world_size": world, "mesh": {"dims": ["fsdp"], "shape": [world]}, "tensors": tensors, "objects": objects}


def save_core(model, target):
    import olmo_core.distributed.checkpoint as checkpoint
    from olmo_core.optim import SkipStepAdamW
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("shard",))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = SkipStepAdamW(model.parameters(), lr=1e-3)
    for parameter in model.parameters():
        optimizer.state[parameter] = states_of(parameter, adam=True)
    checkpoint.save_model_and_optim_state(target, model, optimizer, flatten_optimizer_state=True)


def save_local(model, target):
    import make_olmo  # its stand-ins for what olmo imports
    import olmo.checkpoint
    from olmo.optim import LionW
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    config = make_olmo.cfg_for("local_w1", 8, 1, 18, False)
    whole = dict(use_orig_params=True, device_id=torch.device("cpu"))
    model.blocks[0] = FSDP(model.blocks[0], **whole)
    model = FSDP(model, **whole)
    groups = {"rest": (False, 0.1), "emb": (True, 0.0)}
    optimizer = LionW([{"params": [p for n, p in model.named_parameters() if ("wte" in n) == of],
                        "param_names": [n for n, _ in model.named_parameters() if ("wte" in n) == of],
                        "name": name, "weight_decay": decay} for name, (of, decay) in groups.items()], lr=1e-3)
    for parameter in model.parameters():
        optimizer.state[parameter] = states_of(parameter, adam=False)
    writer = olmo.checkpoint.LocalShardedCheckpointer(config)
    writer._prepare_fsdp_model = lambda _: None
    writer.save_checkpoint(target, model, optimizer, make_olmo.trainer_state(config, 5, 1))


def rank_main(rank, case, out):
    world = CASES[case]["world"]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29641", RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank),
                      LOCAL_WORLD_SIZE=str(world), FS_LOCAL_RANK=str(rank), NODE_RANK="0", NUM_NODES="1", OLMO_SHARED_FS="1")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    model = Model(case)
    truth = expected(case, model)
    (save_core if case == "olmo-core" else save_local)(model, os.path.join(out, "ckpt"))
    dist.barrier()
    if rank == 0:
        with open(os.path.join(out, "expected.json"), "w") as file:
            json.dump(truth, file, indent=1, ensure_ascii=False)
            file.write("\n")


if __name__ == "__main__":
    out, case = os.path.join(sys.argv[1], sys.argv[2]), sys.argv[2]
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    mp.start_processes(rank_main, (case, out), CASES[case]["world"], start_method="fork")

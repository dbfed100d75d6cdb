"""Writes a ZeRO-3 checkpoint as DeepSpeed 0.19 does, without an engine: make_zero3.py DIRECTORY GIB [WORLD]. The fp32 masters have GIB in all, the
files three times that. Needs torch and deepspeed."""
import collections
import math
import os
import sys

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import torch
from deepspeed.runtime.fp16.loss_scaler import LossScaler
from deepspeed.runtime.zero.config import ZeroStageEnum

place, gib, world = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 8
wanted = int(gib * 2**30 / 4)
width = 1024
shapes = collections.OrderedDict(embed=(32000, width))
while sum(map(math.prod, shapes.values())) + 13 * width * width < wanted:
    layer = "layers.%d." % (len(shapes) // 6)
    for name, shape in (("attention.qkv", (3 * width, width)), ("attention.out", (width, width)), ("mlp.up", (4 * width, width)),
                        ("mlp.down", (width, 4 * width)), ("norm1", (width,)), ("norm2", (width,))):
        shapes[layer + name + ".weight"] = shape
part = sum(-(-math.prod(shape) // world) for shape in shapes.values())
sizes = [collections.OrderedDict((name, torch.Size(shape)) for name, shape in shapes.items())]
config = {"bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}
tag = os.path.join(place, "global_step10")
os.makedirs(tag, exist_ok=True)
for rank in range(world):
    generator = torch.Generator().manual_seed(rank)
    block = torch.randn(1 << 20, generator=generator)

    def flat(shift):
        return (block.repeat(-(-part // block.numel()))[:part] + shift).contiguous()

    torch.save({
        "module": collections.OrderedDict((name, torch.empty(0, dtype=torch.bfloat16)) for name in shapes), "buffer_names": [], "optimizer": None,
        "param_shapes": sizes, "frozen_param_shapes": collections.OrderedDict(), "shared_params": {},
        "frozen_param_fragments": collections.OrderedDict(), "lr_scheduler": None, "global_steps": 10, "global_samples": 80, "skipped_steps": 0,
        "dp_world_size": world, "mp_world_size": 1, "ds_config": config, "ds_version": "0.19.8"
    }, os.path.join(tag, "zero_pp_rank_%d_mp_rank_00_model_states.pt" % rank))
    state = {"step": torch.tensor(10.0), "exp_avg": flat(0.5), "exp_avg_sq": flat(2.0).abs()}
    group = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0, "params": [0]}
    torch.save({
        "optimizer_state_dict": {
            "zero_stage": ZeroStageEnum.weights, "loss_scaler": LossScaler(scale=1.0), "dynamic_loss_scale": False, "overflow": False,
            "partition_count": world, "optimizer_state_dict": {"state": {0: state}, "param_groups": [group]}, "fp32_flat_groups": [flat(0.0)]
        }, "ds_config": config, "ds_version": "0.19.8"
    }, os.path.join(tag, "bf16_zero_pp_rank_%d_mp_rank_00_optim_states.pt" % rank))
with open(os.path.join(place, "latest"), "w") as f:
    f.write("global_step10")

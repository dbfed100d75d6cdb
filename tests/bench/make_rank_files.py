"""Writes files of ranks as verl does, DTensors cut along dimension 0: make_rank_files.py DIRECTORY GIB RANK WORLD, once for each rank. Needs torch."""
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

place, gib, rank, world = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
os.makedirs(place, exist_ok=True)
dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("fsdp",))
generator = torch.Generator().manual_seed(rank)
state = {}
for i in range(max(1, int(gib * 2**30 / (2 * 4096 * 4096)))):
    local = torch.randn(4096 // world, 4096, generator=generator).bfloat16()
    state["model.layers.%d.mlp.weight" % i] = DTensor.from_local(local, mesh, [Shard(0)], run_check=False)
torch.save(state, os.path.join(place, "model_world_size_%d_rank_%d.pt" % (world, rank)))

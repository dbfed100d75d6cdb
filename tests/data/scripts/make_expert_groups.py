#!/usr/bin/env python3
"""make_expert_groups.py OUT: files of 4 ranks in 2 expert-parallel groups, each of which numbers its experts from 0 (torch 2.15, Gloo): the experts of
both groups have the same names. In bad-expert-groups they are DTensors on the mesh of their group, in bad-expert-groups-plain tensors."""
import json
import multiprocessing
import os
import pathlib
import sys
import tempfile

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor


def save(rank, out, plain, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=4)
    mesh, everyone = init_device_mesh("cpu", (2, 2), mesh_dim_names=("ep", "fsdp")), init_device_mesh("cpu", (4,), mesh_dim_names=("dp",))
    torch.manual_seed(3)
    state = {"router.weight": distribute_tensor(torch.randn(4, 6), everyone, [Shard(0)]), "norm.weight": torch.randn(6)}
    torch.manual_seed(rank // 2)
    for expert in range(2):
        whole = torch.randn(8, 6)
        mine = whole if plain else DTensor.from_local(whole.chunk(2)[rank % 2].clone(), mesh["fsdp"], [Shard(0)], run_check=False)
        state[f"experts.{expert}.weight"] = mine
    torch.save(state, f"{out}/model_world_size_4_rank_{rank}.pt")
    dist.destroy_process_group()


def main():
    for plain in (False, True):
        place = pathlib.Path(sys.argv[1]) / ("t2.15.0-bad-expert-groups" + ("-plain" if plain else ""))
        (place / "ckpt").mkdir(parents=True)
        with tempfile.TemporaryDirectory() as scratch:
            ranks = [multiprocessing.get_context("fork").Process(target=save, args=(r, str(place / "ckpt"), plain, os.path.join(scratch, "store"))) for r in range(4)]
            [p.start() for p in ranks], [p.join() for p in ranks]
            assert all(p.exitcode == 0 for p in ranks)
        expected = {"about": "experts of two groups under equal names", "framework": "torch 2.15.0", "format": "torch_ranks", "world_size": 4, "tensors": {},
                    "objects": {}, "findings": [{"kind": "extra-tensor", "tensor": f"experts.{e}.weight"} for e in range(2)]}
        (place / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()

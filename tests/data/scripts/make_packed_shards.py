#!/usr/bin/env python3
"""make_packed_shards.py OUT: files of ranks whose DTensors are fused projections, cut with _StridedShard (torch 2.15, Gloo on the processor).

A strided shard that no other axis of the mesh completes cuts each part of a fused projection by itself, as transformers 5 does with gate_up_proj.
The local tensors are those of _StridedShard._split_tensor, axis by axis; where FSDP2 cuts the dimension that tensor parallelism has cut, they are cut
as FSDP2 does, after tensor parallelism. full_tensor() is asked whether it agrees, and does but for one that torch itself cannot put together."""
import hashlib
import itertools
import json
import math
import multiprocessing
import os
import pathlib
import sys
import tempfile

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard


def packed(dim, parts):
    return _StridedShard(dim, split_factor=parts)


CASES = {
    "packed-tp-w2": ((2,), ("tp",), {
        "q_proj.weight": ((8, 6), (Shard(0),)), "experts.gate_up_proj": ((2, 16, 6), (packed(1, 2),)),
        "qkv_proj.weight": ((24, 6), (packed(0, 3),)), "in_proj.weight": ((6, 16), (packed(1, 2),))}),
    "packed-fsdp2-tp-w4": ((2, 2), ("fsdp", "tp"), {
        "experts.gate_up_proj": ((4, 16, 6), (Shard(0), packed(1, 2))), "in_proj.weight": ((6, 16), (Shard(0), packed(1, 2))),
        "qkv_proj.weight": ((24, 6), (Shard(0), packed(0, 3))), "gate_up_proj.weight": ((8, 6), (packed(0, 2), packed(0, 2))),
        "q_proj.weight": ((8, 6), (packed(0, 2), Shard(0))), "replicated.weight": ((16, 6), (Replicate(), packed(0, 4))),
        "crossed.weight": ((8, 8), (packed(0, 2), packed(1, 2)))}),
    "packed-uneven-w4": ((4,), ("tp",), {
        "a": ((18, 6), (packed(0, 2),)), "b": ((9,), (packed(0, 2),)), "c": ((2, 7, 3), (packed(1, 3),)),
        "d": ((3, 5), (packed(0, 8),)), "e": ((5, 13), (packed(1, 2),)), "f": ((5, 4), (Shard(0),))}),
    "packed-uneven-fsdp2-tp-w4": ((2, 2), ("fsdp", "tp"), {
        "a": ((18, 6), (Shard(0), packed(0, 2))), "b": ((9, 3), (Shard(0), packed(0, 2))), "c": ((5, 7), (Shard(0), packed(1, 3))),
        "d": ((7, 7), (packed(0, 3), packed(1, 2))), "e": ((9, 4), (packed(0, 2), Shard(0)))}),
}


def order(shape, placements):
    """FSDP2 cuts after tensor parallelism where its parts are as many as the tensor-parallel ranks."""
    fsdp = placements[0]
    after = len(placements) == 2 and isinstance(fsdp, _StridedShard) and getattr(placements[1], "dim", None) == fsdp.dim and fsdp.split_factor == shape[1]
    return [(1, placements[1]), (0, Shard(fsdp.dim))] if after else list(enumerate(placements))


def local(whole, shape, placements, coordinate):
    for axis, placement in order(shape, placements):
        if not isinstance(placement, Replicate):
            whole = placement._split_tensor(whole, shape[axis], with_padding=False)[0][coordinate[axis]]
    return whole.clone(memory_format=torch.contiguous_format)


def boxes(shape, numbers):
    """The boxes of the elements whose row-major numbers a rank holds: runs of each dimension, and their combinations."""
    runs = []
    for d in range(len(shape)):
        at = sorted(set((numbers.flatten() // math.prod(shape[d + 1:]) % shape[d]).tolist()))
        starts = [i for i in at if i - 1 not in at]
        runs.append([(i, next(n for n in range(1, shape[d] + 1) if i + n not in at)) for i in starts])
    return [{"offsets": [r[0] for r in box], "lengths": [r[1] for r in box]} for box in itertools.product(*runs) if numbers.numel()]


def weights(tensors):
    torch.manual_seed(7)
    return {name: torch.randn(*shape) for name, (shape, _) in tensors.items()}


def save(rank, out, shape, names, tensors, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=math.prod(shape))
    mesh, state = init_device_mesh("cpu", shape, mesh_dim_names=names), {}
    for name, whole in weights(tensors).items():
        placements = tensors[name][1]
        mine = local(whole, shape, placements, mesh.get_coordinate())
        state[name] = DTensor.from_local(mine, mesh, list(placements), run_check=False, shape=whole.shape, stride=whole.stride())
    torch.save(state, f"{out}/model_world_size_{math.prod(shape)}_rank_{rank}.pt")
    for name, whole in weights(tensors).items():
        if not torch.equal(state[name].full_tensor(), whole) and rank == 0:
            print("full_tensor() differs:", name)
    dist.destroy_process_group()


def main():
    out = pathlib.Path(sys.argv[1])
    for case, (shape, names, tensors) in CASES.items():
        place, world = out / f"t{torch.__version__.split('+')[0]}-{case}", math.prod(shape)
        (place / "ckpt").mkdir(parents=True)
        with tempfile.TemporaryDirectory() as scratch:
            args = (str(place / "ckpt"), shape, names, tensors, os.path.join(scratch, "store"))
            ranks = [multiprocessing.get_context("fork").Process(target=save, args=(r, *args)) for r in range(world)]
            [p.start() for p in ranks], [p.join() for p in ranks]
            assert all(p.exitcode == 0 for p in ranks)
        (place / "ckpt" / "fsdp_config.json").write_text(json.dumps({"FSDP_version": 2, "world_size": world}))
        want = {}
        for name, whole in weights(tensors).items():
            numbers = torch.arange(whole.numel()).reshape(whole.shape)
            held = [(r, local(numbers, shape, tensors[name][1], [r // math.prod(shape[a + 1:]) % shape[a] for a in range(len(shape))])) for r in range(world)]
            want[name] = {"dtype": "float32", "shape": list(whole.shape), "sha256": hashlib.sha256(whole.numpy().tobytes()).hexdigest(), "nan": 0, "inf": 0,
                          "chunks": [{"rank": r, **box} for r, part in held for box in boxes(whole.shape, part)], "placements": [repr(p) for p in tensors[name][1]]}
        expected = {"about": "fused projections cut with _StridedShard, " + case, "framework": "torch " + torch.__version__.split("+")[0], "format": "torch_ranks",
                    "world_size": world, "mesh": {"dims": list(names), "shape": list(shape)}, "tensors": want, "objects": {}}
        (place / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()

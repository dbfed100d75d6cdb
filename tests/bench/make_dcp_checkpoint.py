"""make_dcp_checkpoint.py OUT GIB: a DCP checkpoint as torch itself writes it: 8 x FSDP, 2 x TP (dim 1 for half of the weights), bf16
weights and fp32 Adam state, odd sizes, scalars. Sixteen gloo processes, one of each pair of ranks at a time."""
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

FSDP, TP = 8, 2
WIDTH, INNER = 2048, 5461  # odd inner size: 5461 = 43 * 127


def names(layers):
    for i in range(layers):
        yield "layers.%d.attn.qkv.weight" % i, (3 * WIDTH, WIDTH), 0
        yield "layers.%d.attn.out.weight" % i, (WIDTH, WIDTH), 1
        yield "layers.%d.mlp.up.weight" % i, (INNER, WIDTH), 0
        yield "layers.%d.mlp.down.weight" % i, (WIDTH, INNER), 1
        yield "layers.%d.norm.weight" % i, (WIDTH + 1,), None
    yield "embed.weight", (50257, WIDTH // 4), 0


def layers_for(bytes_wanted):
    per_layer = sum(torch.Size(s).numel() for _, s, _ in names(1)) - 50257 * WIDTH // 4
    return max(1, round((bytes_wanted / 10 - 50257 * WIDTH // 4) / per_layer))


def chunk(n, parts, i):
    size = -(-n // parts)
    lo = min(i * size, n)
    return lo, min(lo + size, n)


def local_box(shape, tp_dim, coord):
    """plain DTensor order: fsdp first, then tp, both from the left"""
    lo, hi = [0] * len(shape), list(shape)
    for axis, (parts, dim) in enumerate(((FSDP, 0), (TP, tp_dim))):
        if dim is None:
            continue
        a, b = chunk(hi[dim] - lo[dim], parts, coord[axis])
        lo[dim], hi[dim] = lo[dim] + a, lo[dim] + b
    return lo, hi


def run(rank, out, gib, rendezvous):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + rendezvous, rank=rank, world_size=FSDP * TP)
    mesh = init_device_mesh("cpu", (FSDP, TP), mesh_dim_names=("fsdp", "tp"))
    coord = mesh.get_coordinate()
    generator = torch.Generator().manual_seed(rank)
    model, state = {}, {}
    for name, shape, tp_dim in names(layers_for(gib * 2**30)):
        lo, hi = local_box(shape, tp_dim, coord)
        local_shape = [b - a for a, b in zip(lo, hi)]
        placements = [Shard(0), Replicate() if tp_dim is None else Shard(tp_dim)]

        def dtensor(dtype):
            local = torch.randn(local_shape, generator=generator).to(dtype)
            stride = torch.empty(shape, device="meta").stride()
            return DTensor.from_local(local, mesh, placements, run_check=False, shape=torch.Size(shape), stride=stride)

        model[name] = dtensor(torch.bfloat16)
        state[name] = {"exp_avg": dtensor(torch.float32), "exp_avg_sq": dtensor(torch.float32), "step": torch.tensor(1000.0)}
    sd = {"model": model, "optimizer": {"state": state, "param_groups": [{"lr": 1e-4, "betas": [0.9, 0.95]}]}, "step": 1000}
    dcp.save(sd, checkpoint_id=out)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    destination, size = sys.argv[1], float(sys.argv[2])
    mp.spawn(run, args=(destination, size, os.path.join(tempfile.mkdtemp(), "rendezvous")), nprocs=FSDP * TP)

"""Genuine checkpoints, written as Paddle's distributed checkpoint and loaded by several real processes: each asks
paddle.distributed.load_state_dict for its part, which crosses ranks over gloo, and for the whole."""
import argparse
import faulthandler
import json
import os
import tempfile

from paddle_peer import bits
from peercommon import cases, shardscope

import numpy as np
import paddle
import paddle.distributed as dist

SOURCES = [("dcp", "t2.15.0-fsdp2-tp,t2.15.0-fsdp2-adam"), ("paddle_dist", "v331_w2_1d,v331_flat_w2")]
# Of whole tensors, of fewer, as many and more pieces than there are processes, along either dimension.
WRITTEN = [
    ("whole", []),
    ("two rows", ["--mesh", "x=2", "--shard", "*:x=0", "--split", "paddle"]),
    ("grid", ["--mesh", "dp=2,tp=3", "--shard", "*weight*:tp=0,dp=1", "--shard", "*:dp=0", "--split", "paddle"]),
]
# The default of load_state_dict, and another. Over gloo its pairs of sends and receives wait for each other for ever
# where more than two processes take part.
METHODS = ["broadcast", "send_recv"]
# Paddle makes no tensors of these on the processor.
PARTS = ("float32", "float64", "int32", "int64", "uint8", "bool")  # nor cuts it others there
LEFT_OUT = ("float8_e4m3fn", "float8_e5m2", "complex64", "complex128")


def target(shape, dtype, mesh, place):
    """Zeros to load into: a whole tensor, or this rank's part of a distributed one; None where Paddle cannot."""
    if place is None:
        return paddle.zeros(shape, dtype)
    if dtype not in PARTS or len(shape) <= place or min(shape) == 0:
        return None
    world = mesh.shape[0]
    piece = -(-shape[place] // world)
    if piece * (world - 1) >= shape[place]:
        return None  # a rank with an empty part is refused by shard_tensor
    return dist.shard_tensor(paddle.zeros(shape, dtype), mesh, [dist.Shard(place)])


def part(array, world, rank, dim):
    piece = -(-array.shape[dim] // world)
    return np.take(array, range(rank * piece, min(array.shape[dim], (rank + 1) * piece)), axis=dim)


def rank_main(jobs, seconds):
    faulthandler.dump_traceback_later(seconds, exit=True)
    paddle.set_device("cpu")
    # What goes from rank to rank is moved to a graphics processor first; there is none here.
    paddle.Tensor.cuda = lambda self, *x, **k: self
    dist.init_parallel_env()
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = dist.ProcessMesh(list(range(world)), dim_names=["x"])
    compared = 0
    for title, path, tensors, digests in jobs:
        for method in METHODS if world == 2 else METHODS[:1]:
            whole = {}
            for place in (None, 0, 1):
                state = {name: target(t["shape"], t["dtype"], mesh, place) for name, t in tensors.items()}
                state = {name: tensor for name, tensor in state.items() if tensor is not None}
                if not state:
                    continue
                dist.load_state_dict(state, path, comm_method=method)
                for name, tensor in state.items():
                    if place is None:
                        assert bits(tensor) == digests[name], "%s, %s: rank %d has %r wrong" % (title, method, rank, name)
                        whole[name] = tensor.numpy()
                    else:
                        mine = tensor._local_value().numpy()
                        assert mine.tobytes() == part(whole[name], world, rank, place).tobytes(), \
                            "%s, %s: rank %d has its part of %r along %d wrong" % (title, method, rank, name, place)
                    compared += 1
    print("rank %d of %d: %d loads equal" % (rank, world, compared), flush=True)
    assert compared


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=600)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        jobs = []
        for family, only in SOURCES:
            for name, path, _ in cases(family, only):
                digests = shardscope("digest", path, "--algorithm", "sha256")["tensors"]
                for title, words in WRITTEN:
                    out = os.path.join(place, str(len(jobs)))
                    report = shardscope("convert", path, out, "--to", "paddle", *words)
                    left = {entry["name"] for entry in report["left_out"]}
                    tensors = {t["name"]: t for t in shardscope("ls", path)["tensors"]
                               if t["name"] not in left and t["dtype"] not in LEFT_OUT and t["name"].split("#")[0] not in left}
                    if tensors:
                        jobs.append(("%s/%s %s" % (family, name, title), out, tensors, digests))
        assert jobs
        print("%d checkpoints" % len(jobs), flush=True)
        dist.spawn(rank_main, args=(jobs, options.seconds), nprocs=options.ranks, backend="gloo")


if __name__ == "__main__":
    main()

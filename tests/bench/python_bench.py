"""Parts of the benchmarks of the Python module, each in a process of its own: python_bench.py PART DIRECTORY. Prints JSON."""
import json
import os
import resource
import socket
import statistics
import sys
import time

RANKS = 4


def on_ranks(work, *arguments):
    import torch.multiprocessing as mp

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(rank_main, args=(work, port, arguments), nprocs=RANKS, join=True)


def rank_main(rank, work, port, arguments):
    import torch
    import torch.distributed as dist

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    work(rank, *arguments)
    dist.destroy_process_group()


def state_of(size, fill):
    import torch
    from torch.distributed.tensor import DTensor, Shard, init_device_mesh

    mesh = init_device_mesh("cpu", (RANKS,))
    rows = 4096
    columns = 4096
    state = {}
    for i in range(size // (rows * columns * 4)):
        local = torch.full((rows // RANKS, columns), float(i)) if fill else torch.zeros(rows // RANKS, columns)
        state["layers.%d.weight" % i] = DTensor.from_local(local, mesh, [Shard(0)])
    return state


def save(rank, path, size):
    import torch.distributed.checkpoint as dcp

    dcp.save(state_of(size, True), storage_writer=dcp.FileSystemWriter(path))


def load(rank, path, size, out):
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    import shardscope.torch

    state = state_of(size, False)
    peaks, times = {}, {"ours": [], "theirs": []}
    # Ours first: what a rank has held at most is never forgotten.
    for who, reader in [("ours", shardscope.torch.StorageReader), ("theirs", dcp.FileSystemReader)] * 3:
        dist.barrier()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.monotonic()
        dcp.load(state, storage_reader=reader(path))
        dist.barrier()
        times[who].append(time.monotonic() - start)
        peaks.setdefault(who, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
        for i, value in enumerate(state.values()):
            local = value.to_local()
            assert local[0, 0] == i and local[-1, -1] == i
            local.zero_()
    if rank == 0:
        with open(out, "w", encoding="utf-8") as f:
            json.dump({"ours": min(times["ours"]), "theirs": min(times["theirs"]), "memory": peaks["ours"]}, f)


def part_dcp(work):
    size = 1 << 30
    path = os.path.join(work, "python-dcp")
    if not os.path.exists(os.path.join(path, ".metadata")):
        on_ranks(save, path, size)
    out = os.path.join(work, "python-dcp.json")
    on_ranks(load, path, size, out)
    with open(out, encoding="utf-8") as f:
        return json.load(f)


def part_make_safetensors(work):
    import torch
    from safetensors.torch import save_file

    path = os.path.join(work, "python-hf")
    if not os.path.exists(os.path.join(path, "model.safetensors.index.json")):
        os.makedirs(path, exist_ok=True)
        places = {}
        for f in range(4):
            name = "model-%05d-of-00004.safetensors" % (f + 1)
            tensors = {"layers.%d.%d" % (f, i): torch.randn(4096, 4096).to(torch.bfloat16) for i in range(8)}
            save_file(tensors, os.path.join(path, name), metadata={"format": "pt"})
            places.update(dict.fromkeys(tensors, name))
        with open(os.path.join(path, "model.safetensors.index.json"), "w", encoding="utf-8") as f:
            json.dump({"metadata": {"total_size": 1 << 30}, "weight_map": places}, f)
    return {"path": path}


def summed(state):
    return sum(value.view(-1).to(dtype=value.dtype).sum().item() for value in state.values())


def part_ours(work, **options):
    import torch

    import shardscope

    torch.set_num_threads(os.cpu_count())
    start = time.monotonic()
    state = shardscope.open(os.path.join(work, "python-hf")).torch(**options)
    total = summed(state)
    return {"seconds": time.monotonic() - start, "sum": total}


def part_mapped(work):
    return part_ours(work, mmap=True)


def part_theirs(work):
    import torch
    from safetensors.torch import load_file

    torch.set_num_threads(os.cpu_count())
    path = os.path.join(work, "python-hf")
    start = time.monotonic()
    state = {}
    for name in sorted(os.listdir(path)):
        if name.endswith(".safetensors"):
            state.update(load_file(os.path.join(path, name)))
    total = summed(state)
    return {"seconds": time.monotonic() - start, "sum": total}


def part_slice(work):
    """[128, 128] of a tensor of 1 GiB in 16 chunks."""
    import numpy

    import shardscope

    path, n = os.path.join(work, "python-big"), 16384
    if not os.path.exists(path):
        flat = os.path.join(work, "python-big.safetensors")
        header = json.dumps({"w": {"dtype": "F32", "shape": [n, n], "data_offsets": [0, 4 * n * n]}}).encode()
        with open(flat, "wb") as f:
            f.write(len(header).to_bytes(8, "little") + header)
            for row in range(0, n, 1024):
                f.write(numpy.full((1024, n), row, dtype="float32").tobytes())
        shardscope.convert(flat, path, to="dcp", mesh="dp=4,tp=4", shard=["*:dp=0,tp=1"])
        os.remove(flat)

    def read_so_far():
        with open("/proc/self/io", encoding="utf-8") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("rchar"))

    tensor = shardscope.open(path)["w"]
    before, start = read_so_far(), time.monotonic()
    part = tensor[4032:4160, 4032:4160]
    seconds, read = time.monotonic() - start, read_so_far() - before
    assert part[0, 0] == 4032 // 1024 * 1024
    return {"seconds": seconds, "read": read, "needed": part.nbytes}


def part_import(work):
    start = time.perf_counter()
    import shardscope

    seconds = time.perf_counter() - start
    return {"seconds": seconds, "torch": "torch" in sys.modules, "version": shardscope.__version__}


def part_open(work):
    import shardscope

    start = time.monotonic()
    checkpoint = shardscope.open(os.path.join(work, "metadata"))
    return {"seconds": time.monotonic() - start, "tensors": len(checkpoint)}


def part_gpu(work):
    """Into the memory of a GPU, best of three in turn: the Hugging Face set, and a DCP of it on 4 ranks."""
    import shutil

    import torch
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import load_file

    import shardscope.torch

    source, sharded = os.path.join(work, "python-hf"), os.path.join(work, "python-dcp")
    shutil.rmtree(sharded, ignore_errors=True)
    shardscope.convert(source, sharded, to="dcp", mesh="tp=4", shard=["*:tp=0"])
    files = [os.path.join(source, name) for name in sorted(os.listdir(source)) if name.endswith(".safetensors")]
    state = {name: torch.empty(tensor.shape, dtype=torch.bfloat16, device="cuda") for name, tensor in shardscope.open(sharded).items()}
    ways = {
        "ours": lambda: shardscope.open(source).torch(device="cuda"),
        "theirs": lambda: [load_file(file, device="cuda") for file in files],
        "dcp_ours": lambda: dcp.load(state, storage_reader=shardscope.torch.StorageReader(sharded)),
        "dcp_theirs": lambda: dcp.load(state, storage_reader=dcp.FileSystemReader(sharded)),
    }
    times = dict.fromkeys(ways, float("inf"))
    for _ in range(3):
        for name, way in ways.items():
            torch.cuda.synchronize()
            start = time.monotonic()
            way()
            torch.cuda.synchronize()
            times[name] = min(times[name], time.monotonic() - start)
    shutil.rmtree(sharded)
    return times


if __name__ == "__main__":
    answer = globals()["part_" + sys.argv[1].replace("-", "_")](sys.argv[2])
    print(json.dumps(answer))

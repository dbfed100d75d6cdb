"""Measures Shardscope against named peers in one run; prints the table and writes docs/performance.md. See tests/bench/run."""
import argparse
import json
import math
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import time

import bench_diff
import bench_places
import bench_scale

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
BIN = os.path.join(TOP, "build/release/bin")
rows = []


def row(what, ours, peer, ratio, target, command=""):
    """`command`: what was measured, for a footnote; where it is left out it is the command of the row before, or no single one."""
    rows.append((what, ours, peer, ratio, target, command))
    print("%-58s %-34s %-40s %-12s %s" % rows[-1][:5], flush=True)


def child(words, **kw):
    """wall seconds, peak RSS in bytes, stdout of one process"""
    start = time.monotonic()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, **kw)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - start
    assert status == 0, (words, out[-2000:])
    return seconds, usage.ru_maxrss * 1024, out


def best(n, make):
    return min((make() for _ in range(n)), key=lambda r: r[0])


def python(code, *args):
    return child([sys.executable, "-c", code, *args])


def warm(path):
    total = 0
    for base, _, files in os.walk(path) if os.path.isdir(path) else [(os.path.dirname(path), 0, [os.path.basename(path)])]:
        for name in files:
            with open(os.path.join(base, name), "rb", buffering=0) as f:
                while block := f.read(1 << 24):
                    total += len(block)
    return total


def cold(path):
    for base, _, files in os.walk(path):
        for name in files:
            fd = os.open(os.path.join(base, name), os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def gib(n):
    return "%.2f GiB" % (n / 2**30)


def mib(n):
    return "%.0f MiB" % (n / 2**20)


# ------------------------------------------------------------------ metadata
def bench_metadata(work):
    path = os.path.join(work, "metadata")
    if not os.path.exists(os.path.join(path, ".metadata")):
        os.makedirs(path, exist_ok=True)
        subprocess.run([sys.executable, os.path.join(HERE, "make_metadata.py"), os.path.join(path, ".metadata")], check=True)
    size = warm(os.path.join(path, ".metadata"))
    seconds, rss, _ = best(5, lambda: child([BIN + "/shardscope", "info", path, "--json"]))
    code = """
import gc, sys, time, resource, torch
from torch.distributed.checkpoint import FileSystemReader
if sys.argv[2] == 'off': gc.disable()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.monotonic()
metadata = FileSystemReader(sys.argv[1]).read_metadata()
print(time.monotonic() - start, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024, len(metadata.storage_data))
"""
    for collector, target in (("on", ">= 25x"), ("off", "")):
        peer_seconds, peer_rss, _ = map(float, python(code, path, collector)[2].split())
        row("open .metadata, %d chunks, %s: time, collector %s" % (1024 * 1024, mib(size), collector), "%.3f s" % seconds,
            "read_metadata() %.2f s" % peer_seconds, "%.0fx" % (peer_seconds / seconds), target)
        if collector == "on":
            row("open .metadata: memory (ours: whole process)", mib(rss), mib(peer_rss), "%.1fx" % (peer_rss / rss), ">= 12x")


# ------------------------------------------------------------------ coverage
def bench_coverage():
    ours = json.loads(best(3, lambda: child([BIN + "/coverage_bench"]))[2])
    code = """
import json, random, sys, time, torch
from torch.distributed.checkpoint.default_planner import _validate_global_plan
from torch.distributed.checkpoint.planner import SavePlan
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, TensorProperties, TensorStorageMetadata
def ragged():
    boxes = [([0]*3, [128]*3)]
    while len(boxes) < 1024:
        i, d = random.randrange(len(boxes)), random.randrange(3)
        o, l = boxes[i]
        if l[d] < 2: continue
        cut = random.randrange(1, l[d])
        first, second, offset = list(l), list(l), list(o)
        first[d], second[d] = cut, l[d] - cut
        offset[d] += cut
        boxes[i] = (o, first)
        boxes.append((offset, second))
    return boxes
random.seed(5)
sets = {
 'lines': ([4096, 64], lambda: [([i*4, 0], [4, 64]) for i in range(1024)]),
 'grids': ([256, 256], lambda: [([i//32*8, i%32*8], [8, 8]) for i in range(1024)]),
 'ragged': ([128]*3, ragged),
}
out = {}
for name, (shape, boxes) in sets.items():
    items = {'layer.%d' % t: TensorStorageMetadata(TensorProperties(dtype=torch.float32), torch.Size(shape),
        [ChunkStorageMetadata(torch.Size(o), torch.Size(l)) for o, l in boxes()]) for t in range(1024)}
    metadata = Metadata(items)
    start = time.monotonic()
    result = _validate_global_plan([SavePlan([]), SavePlan([])], metadata)
    out[name] = time.monotonic() - start
    assert not result, name
print(json.dumps(out))
"""
    peer = json.loads(python(code)[2])
    for name, target in (("lines", ">= 40x"), ("grids", ">= 100x"), ("ragged", ">= 40x")):
        row("coverage, 1,024 tensors x 1,024 chunks, %s" % name, "%.3f s" % ours[name], "_validate_global_plan %.2f s" % peer[name],
            "%.0fx" % (peer[name] / ours[name]), target)
        row("  the same with a hole in each, every box listed", "%.3f s" % ours[name + "_with_gaps"], "(gives a volume)", "", "")


# ------------------------------------------------------------------ Paddle
def paddle_python():
    return os.path.join(os.environ.get("SHARDSCOPE_PEERS", os.path.join(TOP, "build/peers")), "paddle-new/bin/python")


def processor(words):
    """processor seconds (user and system) of one process, and its output"""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds, rss, out = child(words, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, rss, out, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def bench_paddle_metadata(work):
    path = os.path.join(work, "paddle-metadata")
    if not os.path.exists(os.path.join(path, "0.metadata")):
        subprocess.run([paddle_python(), os.path.join(HERE, "make_paddle_metadata.py"), path], check=True, stderr=subprocess.DEVNULL)
    size = warm(os.path.join(path, "0.metadata"))
    runs = [processor([BIN + "/shardscope", "info", path, "--json"]) for _ in range(5)]
    code = """
import resource, sys, time, paddle
before = resource.getrusage(resource.RUSAGE_SELF)
start = time.monotonic()
metadata = paddle.load(sys.argv[1] + '/0.metadata')
after = resource.getrusage(resource.RUSAGE_SELF)
print(time.monotonic() - start, (after.ru_maxrss - before.ru_maxrss) * 1024, len(metadata.storage_metadata),
      after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
"""
    peer_seconds, peer_rss, chunks, peer_processor = map(float, child([paddle_python(), "-c", code, path], stderr=subprocess.DEVNULL)[2].split())
    runs += [processor([BIN + "/shardscope", "info", path, "--json"]) for _ in range(5)]
    seconds, rss = min(r[0] for r in runs), max(r[1] for r in runs)
    spent = min(r[3] for r in runs)
    row("open Paddle metadata, %d chunks, %s: time" % (chunks, mib(size)), "%.3f s" % seconds, "paddle.load %.2f s" % peer_seconds,
        "%.0fx" % (peer_seconds / seconds), ">= 25x")
    row("  processor time", "%.3f s" % spent, "%.2f s" % peer_processor, "%.0fx" % (peer_processor / spent), "")
    # Of a chunk: box, rank, file, offset, length, flat range.
    columns = chunks * (4 * 8 + 4 + 4 + 8 + 8 + 16)
    row("  memory (whole process), against the chunk columns", mib(rss), mib(peer_rss), "%.1f x %s" % (rss / columns, mib(columns)), "<= 4 x")


def bench_paddle(work, size):
    whole = os.path.join(work, "whole.safetensors")
    python("""
import sys, torch
from safetensors.torch import save_file
n = int(float(sys.argv[2]) * 2**30 / 4)
save_file({'layers.%d.weight' % i: torch.randn(n // 16 // 4096, 4096) for i in range(16)}, sys.argv[1])
""", whole, str(size))
    source = os.path.join(work, "paddle")
    convert(whole, source, "--to", "paddle", "--mesh", "dp=4,tp=2", "--shard", "*:dp=0,tp=1", "--verify", "none")
    os.unlink(whole)
    code = """
import sys, time, resource, paddle, paddle.distributed as dist
paddle.set_device('cpu')
import json
import math
state = {name: paddle.zeros(shape, 'float32') for name, shape in json.loads(sys.argv[3]).items()}
start = time.monotonic()
dist.load_state_dict(state, sys.argv[1])
paddle.save(state, sys.argv[2] + '/model.pdparams')
print(time.monotonic() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""
    shapes = json.dumps({t["name"]: t["shape"] for t in json.loads(child([BIN + "/shardscope", "ls", source, "--json"])[2])["tensors"]})
    times, peers = [], []
    for _ in range(3):
        place = os.path.join(work, "peer")
        shutil.rmtree(place, ignore_errors=True)
        os.mkdir(place)
        warm(source)
        peers.append(list(map(float, child([paddle_python(), "-c", code, source, place, shapes], stderr=subprocess.DEVNULL)[2].split()[-2:])))
        shutil.rmtree(place)
        warm(source)
        times.append(convert(source, os.path.join(work, "out"), "--to", "safetensors", "--verify", "none"))
        shutil.rmtree(os.path.join(work, "out"))
    seconds, peer_seconds = statistics.median(t[0] for t in times), statistics.median(p[0] for p in peers)
    row("Paddle (4 x 2 ranks) to one checkpoint, %g GiB, warm" % size, "%.2f s" % seconds, "load_state_dict + paddle.save %.2f s" % peer_seconds,
        "%.1fx" % (peer_seconds / seconds), ">= 5x")
    row("  memory", mib(max(t[1] for t in times)), mib(max(p[1] for p in peers)), "", "<= 512 MiB")
    shutil.rmtree(source)


def bench_flat(work, size):
    source = os.path.join(work, "olmo-local")
    if not os.path.exists(os.path.join(source, "config.yaml")):
        subprocess.run([sys.executable, os.path.join(HERE, "make_olmo_local.py"), source, str(size)], check=True)
    files = sorted(os.path.join(source, "model", f) for f in os.listdir(os.path.join(source, "model")))
    target, probe = os.path.join(work, "out"), os.path.join(work, "probe")
    times, probes = [], []
    for _ in range(5):
        warm(source)
        times.append(convert(source, target, "--to", "safetensors", "--mesh", "dp=4", "--shard", "*:dp=0", "--weights-only", "--verify", "none"))
        shutil.rmtree(target)
        warm(source)
        probes.append(json.loads(child([BIN + "/io_probe", *files, probe])[2])["seconds"])
        os.unlink(probe)
    seconds, probe_seconds = statistics.median(t[0] for t in times), statistics.median(probes)
    report = times[-1][2]
    row("flat ranges (OLMo local, 8 ranks) to boxes (safetensors, 4 ranks), %g GiB, warm" % size, "%.2f s" % seconds, "probe of the same bytes %.2f s" % probe_seconds,
        "%.2f" % (probe_seconds / seconds), ">= 0.85")
    io = report["system_io"]
    row("  bytes read / needed; memory", "%.4f" % (io.get("rchar", report["bytes_read"]) / report["plan"]["bytes_read"]), "", mib(max(t[1] for t in times)), "<= 1.01")
    shutil.rmtree(source)


# ------------------------------------------------------------------ conversion
def convert(source, target, *words):
    shutil.rmtree(target, ignore_errors=True)
    if os.path.isfile(target):
        os.unlink(target)
    seconds, rss, out = child([BIN + "/shardscope", "convert", source, target, "--json", *words])
    return seconds, rss, json.loads(out)


# dcp_to_torch_save, then safetensors files of some 5 GB; argv: source, directory for both, and "sync" for files that are on
# the disk at the end, as ours are.
PEER_CONVERSION = """
import sys, torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from safetensors.torch import save_file
dcp_to_torch_save(sys.argv[1], sys.argv[2] + '/all.pt')
flat = {}
def walk(value, name):
    if isinstance(value, torch.Tensor): flat[name] = value.contiguous()
    elif isinstance(value, dict):
        for key, inner in value.items(): walk(inner, (name + '.' if name else '') + str(key))
walk(torch.load(sys.argv[2] + '/all.pt', mmap=True, weights_only=True), '')
shards, held = [{}], 0
for name, tensor in flat.items():
    if held > 5e9: shards, held = shards + [{}], 0
    shards[-1][name] = tensor
    held += tensor.nbytes
import os
for i, shard in enumerate(shards):
    name = sys.argv[2] + '/model-%05d.safetensors' % i
    save_file(shard, name)
    if sys.argv[3] == 'sync': os.fsync(os.open(name, os.O_RDONLY))
"""


def bench_conversion(work, size):
    source = os.path.join(work, "dcp-%g" % size)
    if not os.path.exists(os.path.join(source, ".metadata")):
        subprocess.run([sys.executable, os.path.join(HERE, "make_dcp_checkpoint.py"), source, str(size)], check=True)
    target = os.path.join(work, "out")
    total = warm(source)
    files = sorted(os.path.join(source, f) for f in os.listdir(source) if f.endswith(".distcp"))

    times, peers, synced, probes, verified, both = [], [], [], [], [], []
    report = None
    for _ in range(3):
        place = os.path.join(work, "peer")
        for how, found in (("", peers), ("sync", synced)):
            shutil.rmtree(place, ignore_errors=True)
            os.mkdir(place)
            os.sync()
            warm(source)
            found.append(python(PEER_CONVERSION, source, place, how))
            shutil.rmtree(place)
        os.sync()
        warm(source)
        times.append(convert(source, target, "--to", "safetensors", "--verify", "none"))
        report = times[-1][2]
        shutil.rmtree(target)
        warm(source)
        probe = os.path.join(work, "probe")
        probes.append(json.loads(child([BIN + "/io_probe", *files, probe])[2])["seconds"])
        os.unlink(probe)
        warm(source)
        verified.append(convert(source, target, "--to", "safetensors"))
        warm(source)
        both.append(json.loads(child([BIN + "/io_probe", "--read-back", *files, probe])[2])["seconds"])
        os.unlink(probe)
    seconds = statistics.median(t[0] for t in times)
    peer_seconds = statistics.median(p[0] for p in peers)
    probe_seconds = statistics.median(probes)
    title = "DCP (8 FSDP x 2 TP) to sharded safetensors, %s, warm" % gib(total)
    verified_seconds, both_seconds = statistics.median(t[0] for t in verified), statistics.median(both)
    synced_seconds = statistics.median(p[0] for p in synced)
    row(title + ": read back and verified (the default)", "%.2f s" % verified_seconds, "dcp_to_torch_save + save_file %.2f s" % peer_seconds,
        "%.1fx" % (peer_seconds / verified_seconds), ">= 4x", "convert SRC DST --to safetensors")
    row("  against the peer with its files on the disk at the end, as ours are", "%.2f s" % verified_seconds, "%.2f s" % synced_seconds,
        "%.1fx" % (synced_seconds / verified_seconds), "")
    row("  against a direct read + write + read-back probe of the same bytes", "%.2f s" % verified_seconds, "%.2f s" % both_seconds,
        "%.2f" % (verified_seconds / both_seconds), "<= 1.1")
    row("  not verified (--verify none)", "%.2f s" % seconds, "%.2f s" % peer_seconds, "%.1fx" % (peer_seconds / seconds), ">= 8x",
        "convert SRC DST --to safetensors --verify none")
    row("  memory", mib(max(t[1] for t in times)), gib(max(p[1] for p in peers)), "", "<= 512 MiB")
    row("  not verified, against a direct read + write probe of the same bytes, warm", "%.2f s" % seconds, "%.2f s" % probe_seconds, "%.2f" % (probe_seconds / seconds), ">= 0.85")
    io = report["system_io"]
    needed = report["plan"]["bytes_read"]
    row("  bytes read / needed", gib(io.get("rchar", report["bytes_read"])), gib(needed), "%.4f" % (io.get("rchar", report["bytes_read"]) / needed), "<= 1.01")
    row("  bytes written / output", gib(io.get("wchar", report["bytes_written"])), gib(report["plan"]["bytes_written"]),
        "%.4f" % (io.get("wchar", report["bytes_written"]) / report["plan"]["bytes_written"]), "<= 1.01")
    cold_times, cold_probes = [], []
    for _ in range(3):
        cold(source)
        cold_times.append(convert(source, target, "--to", "safetensors", "--verify", "none")[0])
        shutil.rmtree(target)
        cold(source)
        cold_probes.append(json.loads(child([BIN + "/io_probe", *files, probe])[2])["seconds"])
        os.unlink(probe)
    row("  the same against the probe, cold", "%.2f s" % statistics.median(cold_times), "%.2f s" % statistics.median(cold_probes),
        "%.2f" % (statistics.median(cold_probes) / statistics.median(cold_times)), ">= 0.85")
    bench_conversion_in_memory(source, total)


def bench_conversion_in_memory(source, total):
    """The same job on a file system in memory, where no disk bounds either side."""
    if shutil.disk_usage("/dev/shm").free < 3.5 * total:
        return
    place = "/dev/shm/shardscope-bench"
    shutil.rmtree(place, ignore_errors=True)
    os.mkdir(place)
    try:
        inside = shutil.copytree(source, os.path.join(place, "source"))
        times, peers = {"digest": [], "none": []}, []
        for _ in range(3):
            os.mkdir(os.path.join(place, "peer"))
            peers.append(python(PEER_CONVERSION, inside, os.path.join(place, "peer"), "")[0])
            shutil.rmtree(os.path.join(place, "peer"))
            for verify, found in times.items():
                found.append(convert(inside, os.path.join(place, "out"), "--to", "safetensors", "--verify", verify)[0])
                shutil.rmtree(os.path.join(place, "out"))
        peer_seconds = statistics.median(peers)
        for verify, target in (("digest", ">= 4x"), ("none", ">= 8x")):
            seconds = statistics.median(times[verify])
            row("  the same job in memory (tmpfs), no disk in the way%s" % ("" if verify == "none" else ", verified"), "%.2f s" % seconds,
                "%.2f s" % peer_seconds, "%.1fx" % (peer_seconds / seconds), target)
    finally:
        shutil.rmtree(place)


def bench_memory(work, sizes):
    code = """
import sys, torch
from safetensors.torch import save_file
gib, one = float(sys.argv[2]), sys.argv[3] == 'one'
n = int(gib * 2**30 / 2)
if one: tensors = {'w': torch.empty(n // 4096, 4096, dtype=torch.bfloat16).random_(-9, 9)}
else: tensors = {'w.%d' % i: torch.empty(n // 16 // 4096, 4096, dtype=torch.bfloat16).random_(-9, 9) for i in range(16)}
save_file(tensors, sys.argv[1])
"""
    peaks = {}
    for size, kind in sizes:
        path = os.path.join(work, "memory.safetensors")
        python(code, path, str(size), kind)
        target = os.path.join(work, "out")
        _, rss, _ = convert(path, target, "--to", "dcp", "--mesh", "dp=2,tp=4", "--shard", "*:tp=1,dp=0")
        shutil.rmtree(target)
        os.unlink(path)
        peaks[(size, kind)] = rss
        row("peak memory, safetensors to DCP 2 x 4, %g GiB%s" % (size, ", one tensor" if kind == "one" else ""), mib(rss), "", "", "<= 512 MiB")
    many = [v for (s, k), v in peaks.items() if k == "many"]
    row("peak memory, largest / smallest job", "", "", "%.3f" % (max(many) / min(many)), "<= 1.05")


def bench_merge(work, size):
    code = """
import sys, torch
from safetensors.torch import save_file
n = int(float(sys.argv[2]) * 2**30 / 2)
save_file({'w.%d' % i: torch.empty(n // 8 // 4096, 4096, dtype=torch.bfloat16).random_(-9, 9) for i in range(8)}, sys.argv[1])
"""
    whole = os.path.join(work, "whole.safetensors")
    python(code, whole, str(size))
    found = {}
    for dim in (0, 1):
        sharded = os.path.join(work, "sharded-%d" % dim)
        convert(whole, sharded, "--to", "safetensors", "--mesh", "tp=8", "--shard", "*:tp=%d" % dim, "--verify", "none")
        times, peers = [], []
        for _ in range(3):
            warm(sharded)
            times.append(convert(sharded, os.path.join(work, "out"), "--to", "safetensors", "--verify", "none")[0])
            shutil.rmtree(os.path.join(work, "out"))
            place = os.path.join(work, "peer")
            shutil.rmtree(place, ignore_errors=True)
            os.mkdir(place)
            warm(sharded)
            peers.append(python("""
import sys
from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files
consolidate_safetensors_files(sys.argv[1], sys.argv[2], {'w.%d' % i: i % 2 + 1 for i in range(8)}, num_threads=2)
""", sharded, place)[0])
            shutil.rmtree(place)
        found[dim] = statistics.median(times)
        row("merge of 8 shards along dim %d, %g GiB" % (dim, size), "%.2f s" % found[dim], "consolidate_safetensors_files %.2f s" % statistics.median(peers),
            "%.1fx" % (statistics.median(peers) / found[dim]), "")
        shutil.rmtree(sharded)
    os.unlink(whole)
    row("merge along dim 1 against dim 0", "", "", "%.2f" % (found[0] / found[1]), ">= 0.95")


# ------------------------------------------------------------------ DeepSpeed
def bench_deepspeed(work, size):
    python_there = os.path.join(os.environ.get("SHARDSCOPE_PEERS", os.path.join(TOP, "build/peers")), "deepspeed/bin/python")
    environment = dict(os.environ, DS_ACCELERATOR="cpu")
    source, out = os.path.join(work, "zero3"), os.path.join(work, "out")
    subprocess.run([python_there, os.path.join(HERE, "make_zero3.py"), source, str(size / 3)], check=True, env=environment)

    def peer(*words):
        shutil.rmtree(out, ignore_errors=True)
        warm(source)
        found = child([python_there, *words], env=environment, stderr=subprocess.DEVNULL)
        os.sync()  # ours are on the disk at the end
        return found

    def ours(*words):
        warm(source)
        return convert(source, out, *words)

    # One file: the command line's shards need huggingface_hub.
    code = """
import sys
from deepspeed.utils.zero_to_fp32 import convert_zero_checkpoint_to_fp32_state_dict
convert_zero_checkpoint_to_fp32_state_dict(sys.argv[1], sys.argv[2], max_shard_size=None, safe_serialization=True)
"""
    title = "ZeRO-3, 8 ranks, %g GiB of masters and moments" % size
    masters = ("--to", "safetensors", "--select", "optimizer.state.*.fp32", "--rename", r"^optimizer\.state\.(.*)\.fp32$=$1")
    written = [os.path.join(work, "written")]

    def probe(*words):
        """Writes the same bytes, as fast as this disk does."""
        os.sync()
        warm(written[0])
        found = json.loads(child([BIN + "/io_probe", *words, *written, os.path.join(work, "probe")])[2])["seconds"]
        os.unlink(os.path.join(work, "probe"))
        return found

    # In turn, so that what else the machine does meets all of them.
    theirs, mine, probes = [], {"digest": [], "none": []}, {"digest": [], "none": []}
    for _ in range(3):
        theirs.append(peer("-c", code, source, out))
        for verify in mine:
            os.sync()
            mine[verify].append(ours(*masters, "--verify", verify))
            if not os.path.exists(written[0]):
                os.rename(os.path.join(out, "model.safetensors"), written[0])
            probes[verify].append(probe(*(["--read-back"] if verify == "digest" else [])))
    os.unlink(written[0])
    theirs = min(theirs, key=lambda r: r[0])
    for verify, target in (("digest", ">= 5x"), ("none", "")):
        seconds, limit = min(r[0] for r in mine[verify]), min(probes[verify])
        row("%s: masters to safetensors%s" % (title, ", not verified" if verify == "none" else ""), "%.2f s" % seconds,
            "zero_to_fp32, safetensors %.2f s" % theirs[0], "%.1fx" % (theirs[0] / seconds), target,
            " ".join(("convert SRC DST", *masters[:2], *(w if w[0] == "-" else "'%s'" % w for w in masters[2:]))) + (" --verify none" if verify == "none" else ""))
        row("  against a probe that only writes%s the same bytes" % (" and reads back" if verify == "digest" else ""), "%.2f s" % seconds,
            "%.2f s" % limit, "%.2f" % (seconds / limit), "<= 1.1" if verify == "digest" else "")
    mine = mine["none"][-1]
    row("  memory of the process", mib(mine[1]), mib(theirs[1]), "%.1fx" % (theirs[1] / mine[1]), "<= 512 MiB")
    row("  bytes read / needed", "%.3f" % (mine[2]["bytes_read"] / (size * 2**30 / 3)) if "bytes_read" in mine[2] else "", "", "", "<= 1.01")
    shutil.rmtree(out, ignore_errors=True)
    if "universal" in subprocess.run([BIN + "/shardscope", "formats", "--json"], stdout=subprocess.PIPE, text=True, check=True).stdout:
        theirs = best(1, lambda: peer("-m", "deepspeed.checkpoint.ds_to_universal", "--input_folder", os.path.join(source, "global_step10"), "--output_folder", out))
        mine = best(2, lambda: ours("--to", "deepspeed", "--variant", "universal", "--verify", "none"))
        row("%s: to universal" % title, "%.2f s" % mine[0], "ds_to_universal %.2f s" % theirs[0], "%.1fx" % (theirs[0] / mine[0]), ">= 5x",
            "convert SRC DST --to deepspeed --variant universal --verify none")
    shutil.rmtree(out, ignore_errors=True)
    shutil.rmtree(source)


# ------------------------------------------------------------------ Megatron
def bench_megatron(work, size):
    python_there = os.path.join(os.environ.get("SHARDSCOPE_PEERS", os.path.join(TOP, "build/peers")), "megatron/bin/python")
    source, out = os.path.join(work, "megatron"), os.path.join(work, "out")
    subprocess.run([python_there, "-W", "ignore", os.path.join(HERE, "make_megatron_dist.py"), source, str(size)], check=True, stderr=subprocess.DEVNULL)
    code = """
import os, sys, torch
import torch.distributed as dist
import megatron_on_cpu
from megatron.core import dist_checkpointing
from safetensors.torch import save_file
dist.init_process_group('gloo', init_method='file://' + sys.argv[2] + '.meeting', rank=0, world_size=1)
tensors = {n: t for n, t in dist_checkpointing.load_plain_tensors(sys.argv[1]).items() if isinstance(t, torch.Tensor)}
os.makedirs(sys.argv[2])
save_file(tensors, os.path.join(sys.argv[2], 'model.safetensors'))
dist.destroy_process_group()
os.sync()
os._exit(0)
"""
    environment = dict(os.environ, PYTHONPATH=os.path.join(HERE, "../peers"))

    def peer():
        shutil.rmtree(out, ignore_errors=True)
        warm(source)
        return child([python_there, "-W", "ignore", "-c", code, source, out], env=environment, stderr=subprocess.DEVNULL)

    def ours(*words):
        warm(source)
        return convert(source, out, *words)

    title = "Megatron-Core TP2 x PP2 x DP2, %g GiB, weights and optimizer" % size
    theirs = best(2, peer)
    for verify, target in (("digest", ">= 5x"), ("none", "")):
        mine = best(2, lambda: ours("--to", "safetensors", "--verify", verify))
        row("%s: to safetensors%s" % (title, ", not verified" if verify == "none" else ""), "%.2f s" % mine[0],
            "load_plain_tensors + save_file %.2f s" % theirs[0], "%.1fx" % (theirs[0] / mine[0]), target,
            "convert SRC DST --to safetensors" + (" --verify none" if verify == "none" else ""))
    row("  memory of the process", mib(mine[1]), mib(theirs[1]), "%.1fx" % (theirs[1] / mine[1]), "<= 512 MiB")
    mine = best(2, lambda: ours("--to", "megatron", "--mesh", "pp=1,dp=2,tp=4", "--verify", "none"))
    row("%s: to torch_dist of TP4 x DP2" % title, "%.2f s" % mine[0], "", "", "",
        "convert SRC DST --to megatron --mesh pp=1,dp=2,tp=4 --verify none")
    shutil.rmtree(out, ignore_errors=True)
    shutil.rmtree(source)


# ------------------------------------------------------------------ Orbax
def bench_orbax(work, size):
    python_there = os.path.join(os.environ.get("SHARDSCOPE_PEERS", os.path.join(TOP, "build/peers")), "orbax/bin/python")
    source, out = os.path.join(work, "orbax"), os.path.join(work, "out")

    def made(what):
        shutil.rmtree(source, ignore_errors=True)
        subprocess.run([python_there, "-W", "ignore", os.path.join(HERE, "make_orbax.py"), source, what], check=True, stderr=subprocess.DEVNULL)

    code = """
import os, sys
os.environ['JAX_PLATFORMS'] = 'cpu'
import jax, numpy as np, orbax.checkpoint as ocp, torch
from etils import epath
from safetensors.torch import save_file
handler = ocp.PyTreeCheckpointHandler()
tree = handler.metadata(epath.Path(sys.argv[1]))
tree = getattr(tree, 'tree', tree)
arguments = jax.tree_util.tree_map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
restored = handler.restore(epath.Path(sys.argv[1]), args=ocp.args.PyTreeRestore(restore_args=arguments))
flat = {'.'.join(k.key for k in path): torch.from_numpy(np.ascontiguousarray(value).view(np.int16)).view(torch.bfloat16)
        for path, value in jax.tree_util.tree_flatten_with_path(restored)[0]}
os.makedirs(sys.argv[2])
save_file(flat, os.path.join(sys.argv[2], 'model.safetensors'))
os.sync()
"""

    def peer():
        shutil.rmtree(out, ignore_errors=True)
        warm(source)
        return child([python_there, "-W", "ignore", "-c", code, source, out], stderr=subprocess.DEVNULL)

    def ours(*words):
        warm(source)
        return convert(source, out, "--to", "safetensors", *words)

    made(str(size))
    title = "Orbax, OCDBT with zarr 2, 64 arrays, %g GiB of bfloat16" % size
    theirs = best(2, peer)
    for verify, target in (("digest", ">= 5x"), ("none", "")):
        mine = best(3, lambda: ours("--verify", verify))
        row("%s: to safetensors%s" % (title, ", not verified" if verify == "none" else ""), "%.2f s" % mine[0], "restore + save_file %.2f s" % theirs[0],
            "%.1fx" % (theirs[0] / mine[0]), target)
    row("  memory of the process", mib(mine[1]), mib(theirs[1]), "%.1fx" % (theirs[1] / mine[1]), "<= 512 MiB")
    shutil.rmtree(out, ignore_errors=True)
    made("many")
    warm(source)
    seconds, rss, _ = best(3, lambda: child([BIN + "/shardscope", "info", source, "--json"]))
    row("open of 10,000 arrays on 256 devices; memory", "%.2f s; %s" % (seconds, mib(rss)), "", "", "<= 1 s")
    shutil.rmtree(source)


# ------------------------------------------------------------------ files of ranks
def bench_ranks(work, size):
    world, source, out = 4, os.path.join(work, "ranks"), os.path.join(work, "out")
    for rank in range(world):
        subprocess.run([sys.executable, "-W", "ignore", os.path.join(HERE, "make_rank_files.py"), source, str(size), str(rank), str(world)], check=True)
    code = """
import os, sys, torch
from safetensors.torch import save_file
from torch.distributed.tensor import DTensor
files = ['model_world_size_%s_rank_%d.pt' % (sys.argv[3], rank) for rank in range(int(sys.argv[3]))]
parts = [torch.load(os.path.join(sys.argv[1], f), map_location='cpu', weights_only=False) for f in files]
whole = {}
for name in list(parts[0]):
    values = [part.pop(name) for part in parts]
    whole[name] = torch.cat([v._local_tensor for v in values], 0).contiguous()
os.makedirs(sys.argv[2], exist_ok=True)
save_file(whole, os.path.join(sys.argv[2], 'model.safetensors'))
os.sync()
"""

    def peer():
        shutil.rmtree(out, ignore_errors=True)
        warm(source)
        return python(code, source, out, str(world))

    theirs = best(2, peer)
    for verify, target in (("digest", ">= 5x"), ("none", "")):
        def ours():
            warm(source)
            return convert(source, out, "--to", "safetensors", "--verify", verify)
        mine = best(2, ours)
        row("files of %d ranks, %g GiB, to safetensors%s" % (world, size, ", not verified" if verify == "none" else ""), "%.2f s" % mine[0],
            "load all, concatenate, save %.2f s" % theirs[0], "%.1fx" % (theirs[0] / mine[0]), target,
            "convert SRC DST --to safetensors" + (" --verify none" if verify == "none" else ""))
    row("  memory of the process", mib(mine[1]), mib(theirs[1]), "%.1fx" % (theirs[1] / mine[1]), "<= 512 MiB")
    shutil.rmtree(out, ignore_errors=True)
    shutil.rmtree(source)


# ------------------------------------------------------------------ parts
def bench_parts(work, size):
    source, out, count = os.path.join(work, "parts.safetensors"), os.path.join(work, "out"), 4
    code = """
import sys, torch
from safetensors.torch import save_file
n = int(float(sys.argv[2]) * 2**30 / 2)
save_file({'w.%d' % i: torch.empty(max(1, n // 32 // 1024), 1024, dtype=torch.bfloat16).random_(-9, 9) for i in range(32)}, sys.argv[1])
"""
    convert = ["convert", source, out, "--to", "dcp", "--mesh", "tp=2", "--shard", "*:tp=0", "--verify", "none"]
    validate, records = ["validate", source, "--level", "values"], ["--records", out]

    def used():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    def measured(run, words):
        words = [BIN + "/shardscope"] + words + ["--json"]
        shutil.rmtree(out, ignore_errors=True)
        warm(source)
        before, start = used(), time.monotonic()
        run(words)
        return time.monotonic() - start, used() - before

    def alone(words):
        subprocess.run(words, stdout=subprocess.DEVNULL, check=True)

    def parts(words):
        words += records if "validate" in words else []
        running = [subprocess.Popen(words + ["--part", "%d/%d" % (i, count), "--finish", "auto"], stdout=subprocess.DEVNULL) for i in range(count)]
        assert [process.wait() for process in running] == [0] * count

    for gibs, most in ((0.09375, "at most +0.3 s"), (1, "never slower"), (size, "")):
        python(code, source, str(gibs))
        for words in (convert, validate):
            one = min((measured(alone, words) for _ in range(3)), key=lambda r: r[0])
            four = min((measured(parts, words) for _ in range(3)), key=lambda r: r[0])
            title = "%s in %d parts at once, %g GiB" % (words[0], count, gibs)
            row(title + ": wall time", "%.2f s" % four[0], "one process %.2f s" % one[0], "%.2f" % (four[0] / one[0]), most)
            row("  processor time", "%.2f s" % four[1], "%.2f s" % one[1], "%.2f" % (four[1] / one[1]), "<= 1.10" if gibs == size else "")
    shutil.rmtree(out, ignore_errors=True)
    os.unlink(source)


def bench_average(work, size):
    count, place, out = 8, os.path.join(work, "averaged"), os.path.join(work, "out")
    python("""
import sys, torch, torch.distributed.checkpoint as dcp
n = int(float(sys.argv[2]) * 2**30 / 2) // 32 // 1024
for i in range(int(sys.argv[3])):
    dcp.save({'w.%d' % k: torch.randn(n, 1024).to(torch.bfloat16) for k in range(32)}, checkpoint_id='%s/%d' % (sys.argv[1], i), no_dist=True)
""", place, str(size), str(count))
    sources = [os.path.join(place, str(i)) for i in range(count)]
    files = [os.path.join(source, name) for source in sources for name in os.listdir(source) if name.endswith(".distcp")]
    total = sum(os.path.getsize(name) for name in files)

    def read():
        cold(place)
        return json.loads(child([BIN + "/io_probe", "--read-only", *files])[2])["seconds"]

    def average(*more):
        cold(place)
        shutil.rmtree(out, ignore_errors=True)
        return child([BIN + "/shardscope", "average", *sources, out, "--to", "safetensors", "--threads", "4", "--verify", "none", *more])

    for more in ([], ["--accumulate", "fp64"]):
        pairs = [(read(), average(*more)) for _ in range(3)]
        reading, ours = min(pair[0] for pair in pairs), min(pair[1][:2] for pair in pairs)
        row("average of %d DCPs of %g GiB%s" % (count, size, " in fp64" if more else ""), "%.2f s (%.2f GB/s)" % (ours[0], total / ours[0] / 1e9),
            "only reading them %.2f s" % reading, "%.2f of the rate" % (reading / ours[0]), ">= 0.85")
    row("  peak memory", mib(ours[1]), "", "", "512 MiB + 8 tiles")
    shutil.rmtree(out, ignore_errors=True)
    shutil.rmtree(place)


def bench_values(work, size):
    path = os.path.join(work, "values.safetensors")
    python("""
import sys, torch
from safetensors.torch import save_file
n = int(float(sys.argv[2]) * 2**30 / 2)
save_file({'w.%d' % i: torch.randn(n // 8 // 4096, 4096).to(torch.bfloat16) for i in range(8)}, sys.argv[1])
""", path, str(size))
    warm(path)
    found = json.loads(child([BIN + "/scan_bench", path])[2])
    read, scan = found["read"]["seconds"], found["scan"]["seconds"]
    peer = float(best(3, lambda: python("""
import sys, time, torch
from safetensors import safe_open
start = time.monotonic()
with safe_open(sys.argv[1], 'pt') as f:
    assert all(torch.isfinite(f.get_tensor(n)).all() for n in f.keys())
print(time.monotonic() - start)
""", path))[2])
    row("validate --level values of %g GiB in the page cache" % size, "%.2f s (%.1f GB/s)" % (scan, found["bytes"] / scan / 1e9), "isfinite().all() %.2f s" % peer,
        "%.1fx" % (peer / scan), "")
    row("  against reading it only, with the same threads", "%.2f s" % scan, "%.2f s" % read, "%.2f" % (read / scan), ">= 0.9")
    target = os.path.join(work, "out")
    found = json.loads(child([BIN + "/scan_bench", path, target])[2])
    shutil.rmtree(target)
    plain, fused, digest = found["without"], found["with"], found["digest"]["processor"]
    row("  fused with a conversion: wall time", "%.2f s" % fused["seconds"], "without it %.2f s" % plain["seconds"],
        "%+.1f %%" % (100 * (fused["seconds"] / plain["seconds"] - 1)), "<= 3 %")
    scanned = fused["processor"] - plain["processor"]
    row("  fused with a conversion: processor time of the scan, and of the digest", "%.2f s, %.2f s" % (scanned, digest),
        "%d cores for %.2f s" % (os.cpu_count(), fused["seconds"]),
        "%.1f %%" % (100 * (scanned + digest) / fused["seconds"] / os.cpu_count()), "")
    os.unlink(path)


# ------------------------------------------------------------------ ranks
PEER_LOADS = """
import io, json, os, sys, time, torch
rank, ranks, place = int(sys.argv[2]), int(sys.argv[4]), sys.argv[3]
state = torch.load(sys.argv[1], weights_only=True)
torch.save({k: v.narrow(0, rank * v.shape[0] // ranks, v.shape[0] // ranks).clone() for k, v in state.items()}, os.path.join(place, '%d.pt' % rank))
with open('/proc/self/io') as f:
    print(dict(line.split(': ') for line in f)['rchar'])
"""


def bench_group(work, size):
    source = os.path.join(work, "group.pt")
    python("""
import sys, torch
n = int(float(sys.argv[2]) * 2**30 / 4)
torch.save({'w.%d' % i: torch.randn(n // 8 // 4096, 4096) for i in range(8)}, sys.argv[1])
""", source, str(size))
    total = os.path.getsize(source)
    target = os.path.join(work, "out")
    words = ["convert", source, target, "--to", "dcp", "--mesh", "tp=4", "--shard", "*:tp=0", "--verify", "none", "--json"]

    def broadcast(ranks):
        warm(source)
        seconds, rss, out = child([BIN + "/shardscope", *words, "--on", "ranks:%d,broadcast" % ranks])
        shutil.rmtree(target)
        return seconds, rss, json.loads(out)

    def loads(ranks):
        peer = os.path.join(work, "peer")
        os.mkdir(peer)
        warm(source)
        start = time.monotonic()
        running = [subprocess.Popen([sys.executable, "-c", PEER_LOADS, source, str(r), peer, str(ranks)], stdout=subprocess.PIPE, text=True) for r in range(ranks)]
        read = sum(int(p.communicate()[0]) for p in running)
        seconds = time.monotonic() - start
        shutil.rmtree(peer)
        return seconds, read

    seconds, rss, report = min((broadcast(4) for _ in range(3)), key=lambda r: r[0])
    peer_seconds, read = loads(4)
    row("torch.save file of %g GiB to 4 ranks, broadcast over gloo" % size, "%.2f s, ranks at most %s" % (seconds, mib(rss)), "torch.load on each rank, narrow, save: %.2f s" % peer_seconds,
        "%.1fx" % (peer_seconds / seconds), "> 1, <= 512 MiB")
    row("  bytes read", gib(report["bytes_read"]), gib(read), "%.1fx" % (read / report["bytes_read"]), ">= 5x")
    seconds, rss, of_eight = broadcast(8)
    peer_seconds, read = loads(8)
    row("  bytes read, 8 ranks; time", "%s; %.2f s" % (gib(of_eight["bytes_read"]), seconds), "%s; %.2f s" % (gib(read), peer_seconds), "%.1fx; %.1fx" % (read / of_eight["bytes_read"], peer_seconds / seconds), "")
    row("  bytes read against the source's; moved between ranks", "%.4f; %.2f" % (report["bytes_read"] / report["plan"]["bytes_read"], report["group"]["bytes_moved"] / total), "", "", "1.00")
    for on in ("ranks:1", "ranks:4,direct"):
        warm(source)
        seconds = min(child([BIN + "/shardscope", *words, "--on", on])[0] + 0 * bool(shutil.rmtree(target)) for _ in range(3))
        row("  the same, %s" % on, "%.2f s" % seconds, "", "", "")
    os.unlink(source)

    # Each rank has one file of a checkpoint cut by columns: three quarters of every tile are elsewhere.
    place = os.path.join(work, "disk")
    whole = os.path.join(work, "whole.safetensors")
    python("""
import sys, torch
from safetensors.torch import save_file
n = int(float(sys.argv[2]) * 2**30 / 4)
save_file({'w.%d' % i: torch.randn(n // 8 // 4096, 4096) for i in range(8)}, sys.argv[1])
""", whole, str(size))
    subprocess.run([BIN + "/shardscope", "convert", whole, place + ".cut", "--to", "dcp", "--mesh", "tp=4", "--shard", "*:tp=1", "--verify", "none"], check=True, stdout=subprocess.DEVNULL)
    os.unlink(whole)
    for r in range(4):
        os.makedirs("%s.%d" % (place, r))
        os.rename("%s.cut/__%d_0.distcp" % (place, r), "%s.%d/__%d_0.distcp" % (place, r, r))
        warm("%s.%d" % (place, r))
    os.rename(place + ".cut/.metadata", place + ".0/.metadata")
    # The same files in one place, for one process.
    one = place + ".one"
    os.mkdir(one)
    for r in range(4):
        for name in os.listdir("%s.%d" % (place, r)):
            os.link("%s.%d/%s" % (place, r, name), os.path.join(one, name))

    def processor(line):
        before = os.times()
        out = child(line)[2]
        after = os.times()
        shutil.rmtree(target)
        return after.children_user + after.children_system - before.children_user - before.children_system, json.loads(out)

    try:
        alone = min(processor([BIN + "/shardscope", "convert", one, target, "--to", "safetensors", "--verify", "none", "--json"])[0] for _ in range(3))
        reports = []
        spent = []
        for _ in range(3):
            seconds, out = processor([os.path.join(TOP, "tests/cluster/node-local-ranks"), place, "4", worker, "convert", place, target, "--to", "safetensors", "--verify", "none", "--json"])
            reports.append(out)
            spent.append(seconds)
        report = min(reports, key=lambda r: r["seconds"])
        rate = report["group"]["bytes_moved"] / report["seconds"]
        server = subprocess.Popen(["iperf3", "-s", "-1", "-p", "5299", "-B", "127.0.0.1"], stdout=subprocess.DEVNULL)
        time.sleep(0.5)
        found = json.loads(child(["iperf3", "-c", "127.0.0.1", "-p", "5299", "-t", "4", "-P", "4", "-J"])[2])
        server.wait()
        link = found["end"]["sum_received"]["bits_per_second"] / 8
        row("exchange between 4 ranks' disks, %g GiB cut by columns" % size, "%.2f s, %.2f GB/s between ranks" % (report["seconds"], rate / 1e9), "iperf3, 4 streams: %.2f GB/s" % (link / 1e9),
            "%.2f" % (rate / link), ">= 0.8")
        row("  processor time for each GiB, against one process", "%.2f s" % (min(spent) / size), "%.2f s" % (alone / size), "%.2fx" % (min(spent) / alone), "<= 2x")
    finally:
        for name in [".cut", ".one", ".0", ".1", ".2", ".3", ""]:
            shutil.rmtree(place + name, ignore_errors=True)


# ------------------------------------------------------------------ a GPU
def bench_gpu(work):
    """In the GPU's memory and over PCIe, against its own rates of copying, and Python into its memory; no rows where there is none."""
    import glob
    import torch
    packages = os.path.dirname(os.path.dirname(torch.__file__))
    compilers = sorted(glob.glob(packages + "/nvidia/cu*/lib/libnvrtc.so.*"))
    done = subprocess.run([BIN + "/gpu_bench", *compilers], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode == 3:
        print("gpu: skipped: " + done.stderr.strip(), flush=True)
        return
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    peer = "a copy there: %.0f GB/s" % (found["copy"] / 1e9)
    for name, rate in found["cast"].items():
        row("%s: %s, scan and cut in 8 in its memory" % (found["device"], name), "%.0f GB/s read and written" % (rate / 1e9), peer,
            "%.2f" % (rate / found["copy"]), ">= 0.7")
    row("  digests there", "%.0f GB/s" % (found["digest"] / 1e9), "", "", "")
    for name, (fed, copied) in found["feed"].items():
        row("  %s, scan, digest: from pinned memory and back" % name, "%.1f GB/s come and go" % (fed / 1e9),
            "copies of as much: %.1f GB/s" % (copied / 1e9), "%.2f" % (fed / copied), ">= 0.9")
    warm(python_part(work, "make-safetensors")["path"])
    done = python_part(work, "gpu")
    for ours, theirs, what, peer in (("ours", "theirs", "1 GiB of a Hugging Face set into the GPU, warm: .torch(device=\"cuda\")", "safetensors.torch.load_file"),
                                     ("dcp_ours", "dcp_theirs", "dcp.load of 1 GiB on 4 ranks into the GPU, warm", "torch's FileSystemReader")):
        row(what, "%.2f s" % done[ours], "%s %.2f s" % (peer, done[theirs]), "%.1fx" % (done[theirs] / done[ours]), "")


def machine():
    import safetensors
    import torch
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
        cpu = next((l.split(":", 1)[1].strip() for l in f if l.startswith("model name")), "?")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return "Machine: %s, %d cores, %s memory, kernel %s. Peers: torch %s, safetensors %s, Python %s.\n" % (
        cpu, os.cpu_count(), gib(memory), platform.release(), torch.__version__, safetensors.__version__, platform.python_version())


def table(found):
    text = machine() + "\n| what | Shardscope | peer | ratio | target |\n|---|---|---|---|---|\n"
    notes = []
    for what, ours, peer, ratio, target, command in found:
        if command and command not in notes:
            notes.append(command)
        mark = " <sup>%d</sup>" % (notes.index(command) + 1) if command else ""
        text += "| %s |\n" % " | ".join(cell.strip() for cell in (what + mark, ours, peer, ratio, target))
    return text + "".join("\n<sup>%d</sup> `shardscope %s`" % note for note in enumerate(notes, 1)) + ("\n" if notes else "")


def write_document(measured):
    """Replaces the tables of the measured parts in docs/performance.md; the words around them stay. A new part comes last."""
    path = os.path.join(TOP, "docs/performance.md")
    with open(path, encoding="utf-8") as f:
        text = f.read()
    for name, found in measured.items():
        begin, end = ("<!-- tests/bench/run %s: %s -->\n" % (name, mark) for mark in ("begin", "end"))
        if begin not in text:
            text += "\n## %s\n\n%s%s" % (name.capitalize(), begin, end)
        before, rest = text.split(begin)
        text = before + begin + table(found) + end + rest.split(end)[1]
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


# ------------------------------------------------------------------ the Python module
def python_part(work, name, times=1):
    environment = dict(os.environ, PYTHONPATH=os.path.join(TOP, "build/release/python"), SHARDSCOPE=BIN + "/shardscope")
    words = [sys.executable, os.path.join(HERE, "python_bench.py"), name, work]
    answers = [json.loads(child(words, env=environment)[2]) for _ in range(times)]
    return min(answers, key=lambda answer: answer.get("seconds", 0))


def bench_python(work):
    def part(name, times=1):
        return python_part(work, name, times)

    done = part("dcp")
    row("dcp.load of 1 GiB on 4 gloo ranks", "%.2f s" % done["ours"], "torch's FileSystemReader %.2f s" % done["theirs"],
        "%.1fx" % (done["theirs"] / done["ours"]), ">= 1.5x")
    row("  memory of a rank beside its tensors", mib(done["memory"]), "", "", "<= 256 MiB")
    path = part("make-safetensors")["path"]
    for state in ("warm", "cold"):
        times = {}
        for _ in range(3):
            for who in ("ours", "mapped", "theirs"):
                (warm if state == "warm" else cold)(path)
                times[who] = min(part(who)["seconds"], times.get(who, math.inf))
        for who, how in (("mapped", ".torch(mmap=True)"), ("ours", ".torch(), which copies")):
            row("1 GiB of a Hugging Face set into torch, summed, %s: %s" % (state, how), "%.2f s" % times[who],
                "safetensors.torch.load_file %.2f s" % times["theirs"], "%.2fx" % (times["theirs"] / times[who]), ">= 1.0x")
    done = part("slice", 3)
    row("[128, 128] of a tensor of 1 GiB: read beyond the slice", "%d KiB" % ((done["read"] - done["needed"]) >> 10), "", "",
        "<= 1 MiB")
    row("  until it is there, after open", "%.1f ms" % (done["seconds"] * 1e3), "", "", "<= 50 ms")
    row("import shardscope", "%.0f ms" % (part("import", 5)["seconds"] * 1e3), "", "", "<= 30 ms, without torch")
    metadata = os.path.join(work, "metadata")
    if not os.path.exists(os.path.join(metadata, ".metadata")):
        os.makedirs(metadata, exist_ok=True)
        subprocess.run([sys.executable, os.path.join(HERE, "make_metadata.py"), os.path.join(metadata, ".metadata")], check=True)
    warm(os.path.join(metadata, ".metadata"))
    program = best(5, lambda: child([BIN + "/shardscope", "info", metadata, "--json"]))[0]
    opened = part("open", 5)["seconds"]
    row("open of a DCP of 1M chunks from Python", "%.2f s" % opened, "shardscope info %.2f s" % program,
        "%.2f of its time" % (opened / program), "<= 1.2")


# Each has a table of its own in docs/performance.md. "scale" needs an hour, and is measured when it is named.
PARTS = {
    "conversion": bench_conversion,
    "deepspeed": bench_deepspeed,
    "megatron": bench_megatron,
    "ranks": bench_ranks,
    "orbax": lambda work, _: bench_orbax(work, 1),
    "paddle": lambda work, _: bench_paddle(work, 2),
    "flat": lambda work, _: bench_flat(work, 2),
    "merge": bench_merge,
    "memory": lambda work, _: bench_memory(work, [(1, "many"), (8, "many"), (4, "one")]),
    "average": lambda work, _: bench_average(work, 1),
    "values": bench_values,
    "diff": lambda work, _: bench_diff.run(work, 1.4, row, BIN + "/shardscope"),
    "metadata": lambda work, _: bench_metadata(work),
    "paddle-metadata": lambda work, _: bench_paddle_metadata(work),
    "coverage": lambda *_: bench_coverage(),
    "group": lambda work, _: bench_group(work, 1),
    "parts": bench_parts,
    "python": lambda work, _: bench_python(work),
    "gpu": lambda work, _: bench_gpu(work),
    "places": lambda work, size: bench_places.run(work, min(size, 2), row, child, best),
    "scale": lambda work, _: bench_scale.run(work, row, best, child, BIN + "/shardscope"),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=float, default=4.0, help="GiB of the conversion")
    parser.add_argument("--work", default=os.path.join(TOP, "build/bench-data"))
    parser.add_argument("--only", help="names of PARTS, separated by commas")
    parser.add_argument("--write", action="store_true", help="write what was measured into docs/performance.md")
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    os.makedirs(options.work, exist_ok=True)
    measured = {}
    for name in options.only.split(",") if options.only else [name for name in PARTS if name != "scale"]:
        rows.clear()
        PARTS[name](options.work, options.size)
        if rows:
            measured[name] = list(rows)
    if options.write or not options.only:
        write_document(measured)
    if not options.keep:
        shutil.rmtree(options.work)


if __name__ == "__main__":
    main()

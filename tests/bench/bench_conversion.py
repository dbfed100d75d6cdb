"""Conversions of DCP, safetensors, Paddle and OLMo."""
import json
import os
import shutil
import statistics
import subprocess
import sys

from measure import BIN, HERE, child, cold, convert, gib, headline, mib, peer_python, python, row, warm

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
    headline("DCP (8 FSDP x 2 TP) to safetensors, %s <sup>1</sup>" % gib(total), (verified_seconds, max(t[1] for t in verified)), seconds,
             "`dcp_to_torch_save` + `save_file`", (peer_seconds, max(p[1] for p in peers)), ">= 4x")
    headline("the same against a direct probe that reads, writes and reads back the same bytes at once", (verified_seconds,), None, "", (both_seconds,), "<= 1.1")
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
        peers.append(list(map(float, child([peer_python("paddle-new"), "-c", code, source, place, shapes], stderr=subprocess.DEVNULL)[2].split()[-2:])))
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

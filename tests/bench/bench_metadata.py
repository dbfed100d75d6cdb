"""Opening metadata and coverage, against the frameworks' own."""
import json
import os
import subprocess
import sys

from measure import BIN, HERE, best, child, mib, peer_python, processor, python, row, warm


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


def bench_paddle_metadata(work):
    path = os.path.join(work, "paddle-metadata")
    if not os.path.exists(os.path.join(path, "0.metadata")):
        subprocess.run([peer_python("paddle-new"), os.path.join(HERE, "make_paddle_metadata.py"), path], check=True, stderr=subprocess.DEVNULL)
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
    peer_seconds, peer_rss, chunks, peer_processor = map(float, child([peer_python("paddle-new"), "-c", code, path], stderr=subprocess.DEVNULL)[2].split())
    runs += [processor([BIN + "/shardscope", "info", path, "--json"]) for _ in range(5)]
    seconds, rss = min(r[0] for r in runs), max(r[1] for r in runs)
    spent = min(r[3] for r in runs)
    row("open Paddle metadata, %d chunks, %s: time" % (chunks, mib(size)), "%.3f s" % seconds, "paddle.load %.2f s" % peer_seconds,
        "%.0fx" % (peer_seconds / seconds), ">= 25x")
    row("  processor time", "%.3f s" % spent, "%.2f s" % peer_processor, "%.0fx" % (peer_processor / spent), "")
    # Of a chunk: box, rank, file, offset, length, flat range.
    columns = chunks * (4 * 8 + 4 + 4 + 8 + 8 + 16)
    row("  memory (whole process), against the chunk columns", mib(rss), mib(peer_rss), "%.1f x %s" % (rss / columns, mib(columns)), "<= 4 x")

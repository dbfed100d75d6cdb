"""`diff --values` of two checkpoints that differ everywhere, against torch on one thread with the same figures: processor time, reading
included, and that both say the same. Called by run_benchmarks.py."""
import json
import os
import resource
import shutil
import subprocess
import sys

from measure import BIN, row

MAKE = """
import sys, torch
from safetensors.torch import save_file
dtype, n = getattr(torch, sys.argv[3]), int(float(sys.argv[4]) * 2**30) // int(sys.argv[5])
torch.manual_seed(1)
a = {'layers.%d.weight' % i: torch.randn(n // 16 // 4096, 4096) * 0.02 for i in range(16)}
b = {name: (t * (1 + torch.randn_like(t) * 0.01)) for name, t in a.items()}
for tensors, path in ((a, sys.argv[1]), (b, sys.argv[2])):
    save_file({name: t.to(dtype) for name, t in tensors.items()}, path)
"""
# In blocks that stay in the cache, which is several times faster than whole tensors.
PEER = """
import json, resource, sys, torch
from safetensors import safe_open
torch.set_num_threads(1)
before = resource.getrusage(resource.RUSAGE_SELF)
found = {}
exact = dict(dtype=torch.float64)
kinds = {2: (torch.int16, torch.int32, 2 ** 15 - 1), 4: (torch.int32, torch.int64, 2 ** 31 - 1)}
def ordered(bits, wide, magnitude):
    bits = bits.to(wide)
    return torch.where(bits < 0, -(bits & magnitude), bits)
with safe_open(sys.argv[1], 'pt') as first, safe_open(sys.argv[2], 'pt') as second, torch.no_grad():
    for name in first.keys():
        most, sums = torch.zeros(4, **exact), torch.zeros(4, **exact)
        for a, b in zip(first.get_tensor(name).flatten().split(1 << 17), second.get_tensor(name).flatten().split(1 << 17)):
            kind, wide, magnitude = kinds[a.element_size()]
            p, q = a.view(kind), b.view(kind)
            x, y = a.float(), b.float()
            d = (x - y).abs()
            rel = (d / torch.maximum(x.abs(), y.abs())).nan_to_num(0)
            ulp = (ordered(p, wide, magnitude) - ordered(q, wide, magnitude)).abs()
            most = torch.maximum(most, torch.stack([d.max().double(), rel.max().double(), ulp.max().double(), most[3]]))
            most[3] += (p != q).sum()
            sums += torch.stack([(d * d).sum(**exact), (x * y).sum(**exact), (x * x).sum(**exact), (y * y).sum(**exact)])
        square, product, na, nb = sums.tolist()
        if most[3]:
            found[name] = {'different': int(most[3]), 'max_abs': most[0].item(), 'max_rel': most[1].item(), 'max_ulp': int(most[2]),
                           'cosine': product / (na * nb) ** 0.5, 'l2': square ** 0.5, 'rel_l2': (square / na) ** 0.5}
after = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({'values': found, 'processor': after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}))
"""


def spent(words):
    """processor seconds (user and system) of a process, and what it prints as JSON"""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = subprocess.run(words, stdout=subprocess.PIPE, check=False).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, json.loads(out)


def check(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, figures in theirs.items():
        for key, value in figures.items():
            exact = key in ("different", "max_ulp")
            assert abs(ours[name][key] - value) <= (0 if exact else 1e-5 * abs(value)), (name, key, ours[name][key], value)


def run(work, size):
    place = os.path.join(work, "diff")
    for dtype, width in (("bfloat16", 2), ("float32", 4)):
        shutil.rmtree(place, ignore_errors=True)
        os.makedirs(place)
        a, b = os.path.join(place, "a.safetensors"), os.path.join(place, "b.safetensors")
        subprocess.run([sys.executable, "-c", MAKE, a, b, dtype, str(size), str(width)], check=True)
        runs, peers = [], []
        for _ in range(3):
            runs.append(spent([BIN + "/shardscope", "diff", a, b, "--values", "--json"]))
            peers.append(spent([sys.executable, "-c", PEER, a, b])[1])
        check({v["name"]: v for v in runs[0][1]["values"]}, peers[0]["values"])
        ours, theirs = min(r[0] for r in runs), min(p["processor"] for p in peers)
        row("diff --values, 2 x %g GiB of %s that differ everywhere: processor time" % (size, dtype), "%.2f s (whole process)" % ours,
            "torch, one thread, without imports %.2f s" % theirs, "%.1fx" % (theirs / ours), ">= 3x")
    shutil.rmtree(place)

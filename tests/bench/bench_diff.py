"""`diff --values` of two checkpoints that differ everywhere, against torch on one thread with the same figures: processor time, reading
included, and that both say the same. Called by run_benchmarks.py."""
import json
import os
import resource
import shutil
import subprocess
import sys

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
PEER = """
import json, resource, sys, torch
from safetensors import safe_open
torch.set_num_threads(1)
before = resource.getrusage(resource.RUSAGE_SELF)
found = {}
def ordered(t, bits):
    kind, wide = {16: (torch.int16, torch.int32), 32: (torch.int32, torch.int64)}[bits]
    t = t.view(kind).to(wide)
    return torch.where(t < 0, -(t & (2 ** (bits - 1) - 1)), t)
with safe_open(sys.argv[1], 'pt') as first, safe_open(sys.argv[2], 'pt') as second, torch.no_grad():
    for name in first.keys():
        a, b = first.get_tensor(name), second.get_tensor(name)
        bits = a.element_size() * 8
        if torch.equal(a, b):
            continue
        x, y = a.float(), b.float()
        d = (x - y).abs()
        exact = dict(dtype=torch.float64)
        l2 = torch.linalg.vector_norm(d, **exact).item()
        na, nb = torch.linalg.vector_norm(x, **exact).item(), torch.linalg.vector_norm(y, **exact).item()
        found[name] = {
            'different': (a.view(torch.int16 if bits == 16 else torch.int32) != b.view(torch.int16 if bits == 16 else torch.int32)).sum().item(),
            'max_abs': d.max().item(), 'max_rel': (d / torch.maximum(x.abs(), y.abs())).nan_to_num(0).max().item(),
            'max_ulp': (ordered(a, bits) - ordered(b, bits)).abs().max().item(),
            'cosine': torch.mul(x, y).sum(**exact).item() / (na * nb), 'l2': l2, 'rel_l2': l2 / na}
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


def run(work, size, row, program):
    place = os.path.join(work, "diff")
    for dtype, width in (("bfloat16", 2), ("float32", 4)):
        shutil.rmtree(place, ignore_errors=True)
        os.makedirs(place)
        a, b = os.path.join(place, "a.safetensors"), os.path.join(place, "b.safetensors")
        subprocess.run([sys.executable, "-c", MAKE, a, b, dtype, str(size), str(width)], check=True)
        runs, peers = [], []
        for _ in range(3):
            runs.append(spent([program, "diff", a, b, "--values", "--json"]))
            peers.append(spent([sys.executable, "-c", PEER, a, b])[1])
        check({v["name"]: v for v in runs[0][1]["values"]}, peers[0]["values"])
        ours, theirs = min(r[0] for r in runs), min(p["processor"] for p in peers)
        row("diff --values, 2 x %g GiB of %s that differ everywhere: processor time" % (size, dtype), "%.2f s (whole process)" % ours,
            "torch, one thread, without imports %.2f s" % theirs, "%.1fx" % (theirs / ours), ">= 3x")
    shutil.rmtree(place)

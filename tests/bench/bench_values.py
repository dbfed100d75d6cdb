"""Reading all values, alone and while converting."""
import json
import os
import shutil

from measure import BIN, best, child, python, row, warm


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

"""The Python module, and a GPU."""
import json
import math
import os
import subprocess
import sys

from measure import BIN, HERE, TOP, best, child, cold, mib, row, warm


def python_part(work, name, times=1):
    environment = dict(os.environ, PYTHONPATH=os.path.join(TOP, "build/release/python"), SHARDSCOPE=BIN + "/shardscope")
    words = [sys.executable, os.path.join(HERE, "python_bench.py"), name, work]
    answers = [json.loads(child(words, env=environment)[2]) for _ in range(times)]
    return min(answers, key=lambda answer: answer.get("seconds", 0))


def bench_python(work):
    def part(name, times=1):
        return python_part(work, name, times)

    done = part("dcp")
    row("`dcp.load` of 1 GiB on 4 gloo ranks", "%.2f s" % done["ours"], "torch's `FileSystemReader` %.2f s" % done["theirs"],
        "%.1fx" % (done["theirs"] / done["ours"]), ">= 1.5x")
    row("  memory of a rank beside its tensors", mib(done["memory"]), "", "", "<= 256 MiB")
    path = part("make-safetensors")["path"]
    for state in ("warm", "cold"):
        times = {}
        for _ in range(3):
            for who in ("ours", "mapped", "theirs"):
                (warm if state == "warm" else cold)(path)
                times[who] = min(part(who)["seconds"], times.get(who, math.inf))
        for who, how in (("mapped", "`.torch(mmap=True)`"), ("ours", "`.torch()`, which copies")):
            row("1 GiB of a Hugging Face set into torch, summed, %s: %s" % (state, how), "%.2f s" % times[who],
                "`safetensors.torch.load_file` %.2f s" % times["theirs"], "%.2fx" % (times["theirs"] / times[who]), ">= 1.0x")
    done = part("slice", 3)
    row("[128, 128] of a tensor of 1 GiB: read beyond the slice", "%d KiB" % ((done["read"] - done["needed"]) >> 10), "", "",
        "<= 1 MiB")
    row("  until it is there, after open", "%.1f ms" % (done["seconds"] * 1e3), "", "", "<= 50 ms")
    row("`import shardscope`", "%.0f ms" % (part("import", 5)["seconds"] * 1e3), "", "", "<= 30 ms, without torch")
    metadata = os.path.join(work, "metadata")
    if not os.path.exists(os.path.join(metadata, ".metadata")):
        os.makedirs(metadata, exist_ok=True)
        subprocess.run([sys.executable, os.path.join(HERE, "make_metadata.py"), os.path.join(metadata, ".metadata")], check=True)
    warm(os.path.join(metadata, ".metadata"))
    program = best(5, lambda: child([BIN + "/shardscope", "info", metadata, "--json"]))[0]
    opened = part("open", 5)["seconds"]
    row("open of a DCP of 1M chunks from Python", "%.2f s" % opened, "`shardscope info` %.2f s" % program,
        "%.2f of its time" % (opened / program), "<= 1.2")


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

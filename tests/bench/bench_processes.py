"""What several processes do: parts, and ranks."""
import json
import os
import resource
import shutil
import subprocess
import sys
import time

from measure import BIN, TOP, child, gib, mib, python, row, warm


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
            seconds, out = processor([os.path.join(TOP, "tests/cluster/node-local-ranks"), place, "4", BIN + "/shardscope", "convert", place, target, "--to", "safetensors", "--verify", "none", "--json"])
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

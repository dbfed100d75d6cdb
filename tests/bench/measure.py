"""What the benchmarks share: rows of tables, processes that are timed, and files that are in the page cache or not."""
import json
import os
import resource
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
BIN = os.path.join(TOP, "build/release/bin")
rows = []
headlines = []


def row(what, ours, peer, ratio, target, command=""):
    """`command`: what was measured, for a footnote; where it is left out it is the command of the row before, or no single one."""
    rows.append((what, ours, peer, ratio, target, command))
    print("%-58s %-34s %-40s %-12s %s" % rows[-1][:5], flush=True)


def headline(what, ours, plain, peer, theirs, target=""):
    """A row of the first table of docs/performance.md, from which the README's is made: seconds and bytes of memory of a conversion that verifies,
    seconds of one that does not, and what the peer, which `peer` names, took."""
    headlines.append((what, ours[:2], plain, peer, theirs[:2], target))


def child(words, **kw):
    """wall seconds, peak RSS in bytes, stdout of one process"""
    start = time.monotonic()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, **kw)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - start
    assert status == 0, (words, out[-2000:])
    return seconds, usage.ru_maxrss * 1024, out


def processor(words):
    """processor seconds (user and system) of one process, and its output"""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds, rss, out = child(words, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, rss, out, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def best(n, make):
    return min((make() for _ in range(n)), key=lambda r: r[0])


def python(code, *args):
    return child([sys.executable, "-c", code, *args])


def peer_python(environment):
    """The Python of an environment that packaging/peers made."""
    return os.path.join(os.environ.get("SHARDSCOPE_PEERS", os.path.join(TOP, "build/peers")), environment, "bin/python")


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
    return "{:,.0f} MiB".format(n / 2**20)


def convert(source, target, *words):
    shutil.rmtree(target, ignore_errors=True)
    if os.path.isfile(target):
        os.unlink(target)
    seconds, rss, out = child([BIN + "/shardscope", "convert", source, target, "--json", *words])
    return seconds, rss, json.loads(out)

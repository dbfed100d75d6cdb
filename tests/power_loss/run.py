"""run.py PROGRAM [CLOCK] [--states N] [--seed N] [--scenario NAME]: no power failure costs a destination.

Each scenario runs the program under strace; states.py makes states that may be on disk after a power failure at any moment of it. In each of them the
destination is absent, the old one or the new one, byte for byte (where names cannot be exchanged the old one may be beside it, under its own name), and
what a user runs next ends with the new one, or with an error that leaves the old one and after whose hint it does. CLOCK is preloaded: with it a journal is
brought to disk at every look, not every two seconds. Exits with 77 where strace cannot run."""
import argparse
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

import states

NO_EXCHANGE = ("renameat2:error=EINVAL",)   # as NFS, Lustre and others say


def make_source(path, tensors):
    rng, header, at, body = random.Random(7), {}, 0, b""
    for name, count in tensors:
        header[name] = {"dtype": "F32", "shape": [count], "data_offsets": [at, at + 4 * count]}
        at += 4 * count
        body += struct.pack(f"<{count}f", *(rng.random() for _ in range(count)))
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)


class Scenario:
    """`commands` are recorded, each with what strace injects (one that is killed may fail); `recover` is what is run after the failure; `old` makes what
    they replace."""

    def __init__(self, name, commands, recover=None, old=(), inject=(), kill=None):
        self.name, self.commands, self.recover, self.old, self.inject, self.kill = name, commands, recover or commands, old, inject, kill


def scenarios(source, small):
    def convert(target, *more):
        return ["convert", source, "{dst}", "--to", target, "--threads", "2", "--verify", "none", *more]

    mesh, cut = ["--mesh", "tp=2", "--shard", "*:tp=0"], ["--max-file-size", "60KB"]

    def parts(target, *more):
        return [convert(target, *more, *words) for words in (["--part", "0/2"], ["--part", "1/2"], ["--finish"])]

    def old(target):
        return [["convert", small, "{dst}", "--to", target]]

    extract = ["extract", source, "layer0", "{dst}"]
    return [
        Scenario("alone", [convert("dcp", *mesh)], [convert("dcp", *mesh, "--resume")]),
        Scenario("resumed", [convert("safetensors", *cut), convert("safetensors", *cut, "--resume")], [convert("safetensors", *cut, "--resume")],
                 kill="pwrite64:signal=KILL:when=6"),
        Scenario("overwrite", [convert("deepspeed", "--overwrite")], [convert("deepspeed", "--overwrite", "--resume")], old("deepspeed")),
        Scenario("overwrite-without-exchange", [convert("dcp", *mesh, "--overwrite")], [convert("dcp", *mesh, "--overwrite", "--resume")], old("dcp"),
                 NO_EXCHANGE),
        Scenario("file-without-exchange", [convert("torch", "--overwrite")], [convert("torch", "--overwrite", "--resume")], old("torch"), NO_EXCHANGE),
        Scenario("parts", parts("dcp", *mesh)),
        Scenario("parts-killed", parts("safetensors", *cut)[:1] + parts("safetensors", *cut), parts("safetensors", *cut),
                 kill="pwrite64:signal=KILL:when=8"),
        Scenario("parts-overwrite", parts("safetensors", *cut, "--overwrite"), old=old("safetensors")),
        Scenario("extract-overwrite", [extract + ["--overwrite"]], old=[["extract", small, "layer0", "{dst}"]]),
        Scenario("extract-without-exchange", [extract + ["--overwrite"]], old=[["extract", small, "layer0", "{dst}"]], inject=NO_EXCHANGE),
    ]


class Run:
    def __init__(self, options, work):
        self.options, self.work = options, work

    def env(self, home, clock):
        env = {"PATH": os.environ["PATH"], "HOME": home, "LC_ALL": "C.UTF-8"}
        return env | {"LD_PRELOAD": self.options.clock, "SHARDSCOPE_TEST_AHEAD": "250"} if clock and self.options.clock else env

    def words(self, words, root):
        return [self.options.program] + [word.replace("{dst}", os.path.join(root, "out")) for word in words]

    def do(self, words, root):
        done = subprocess.run(self.words(words, root), env=self.env(root, False), stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
        return done.returncode, done.stderr.decode("utf-8", "replace")

    def must(self, words, root):
        code, text = self.do(words, root)
        if code != 0:
            sys.exit(f"{words} ended with {code}: {text}")

    def prepare(self, scenario):
        """What a run without a failure makes, what it replaces, and the log of it."""
        whole, root = os.path.join(self.work, scenario.name + "-whole"), os.path.join(self.work, scenario.name)
        os.makedirs(whole), os.makedirs(root)
        for words in scenario.recover:
            self.must([word for word in words if word not in ("--overwrite", "--resume")], whole)
        for words in scenario.old:
            self.must(words, root)
        new, old = states.found(os.path.join(whole, "out")), states.found(os.path.join(root, "out"))
        log, trace = states.Log(root), os.path.join(self.work, "trace")
        for n, words in enumerate(scenario.commands):
            killed = scenario.kill and n == 0
            code = states.record(self.words(words, root), trace, self.env(root, True), scenario.inject + ((scenario.kill,) if killed else ()))
            if code != 0 and not killed:
                sys.exit(f"{scenario.name}: {words} ended with {code} under strace")
            log.add(trace)
        if states.found(os.path.join(root, "out")) != new or states.part(log.state(log.events, random.Random(0), "all"), "out") != new:
            sys.exit(f"{scenario.name}: what was recorded is not what is on disk")
        return new, old, log

    def faults(self, scenario, new, old, files, root):
        def kind(there):
            return "absent" if there is None else "new" if there == new else "old" if there == old else "BROKEN"

        faults, before = [], kind(states.part(files, "out"))
        aside = before == "absent" and old is not None and states.part(files, ".out.shardscope-old") == old
        if before == "BROKEN" or (old is not None and before == "absent" and not aside):
            faults.append(f"the destination is {before}")
        states.put(files, root)
        for words in scenario.recover:
            code, text = self.do(words, root)
            if code < 0 or code >= 128:
                faults.append(f"{words} ended with {code}: {text}")
        after = kind(states.found(os.path.join(root, "out")))
        if after == "BROKEN" or (code == 0 and after != "new") or (old is not None and after == "absent") or (before == "new" and after != "new"):
            faults.append(f"the destination was {before}, and after the recovery ({code}) it is {after}: {text}")
        elif after != "new":
            shutil.rmtree(os.path.join(root, ".out.shardscope-partial"), ignore_errors=True)   # as the hints say
            for words in scenario.recover:
                code, text = self.do(words, root)
            if kind(states.found(os.path.join(root, "out"))) != "new":
                faults.append(f"begun anew it does not end: {text}")
        return faults

    def run(self, scenario):
        """How many states were tried; sys.exit with the first one that breaks a promise."""
        new, old, log = self.prepare(scenario)
        moments, rng, seen, root = log.moments(), random.Random(f"{self.options.seed} {scenario.name}"), set(), os.path.join(self.work, "state")
        end = [moment for moment in moments if moment >= log.publication() - 20]   # what happens there matters most
        for _ in range(4 * self.options.states):
            files = log.state(rng.choice(end if rng.random() < 0.4 else moments), rng, rng.choice(states.MODES))
            key = hash(tuple(sorted(files.items())))
            if key in seen:
                continue
            seen.add(key)
            if faults := self.faults(scenario, new, old, files, root):
                states.put(files, root)
                sys.exit(f"{scenario.name}, state {len(seen)}: {'; '.join(faults)}\non disk: { {name: len(data or b'') for name, data in files.items()} }")
            if len(seen) == self.options.states:
                break
        return len(seen)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("clock", nargs="?", default="")
    parser.add_argument("--states", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scenario", default="")
    options = parser.parse_args()
    if not shutil.which("strace") or subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True).returncode != 0:
        print("skipped: strace is missing, or may not trace here")
        sys.exit(77)
    fast = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=fast) as work:
        source, small = os.path.join(work, "source.safetensors"), os.path.join(work, "small.safetensors")
        make_source(source, [(f"layer{i}", 4000 + 500 * i) for i in range(8)])
        make_source(small, [("layer0", 30)])
        with open(source, "rb") as file:
            before = file.read()
        total, run = 0, Run(options, work)
        for scenario in scenarios(source, small):
            if options.scenario in scenario.name:
                total += (count := run.run(scenario))
                print(f"{scenario.name}: {count} states", flush=True)
        with open(source, "rb") as file:
            if file.read() != before:
                sys.exit("the source was changed")
    print(f"{total} states, each absent, old or new, and whole after the recovery")


if __name__ == "__main__":
    main()

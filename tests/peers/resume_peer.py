"""resume_peer.py FRAMEWORK: does the framework itself resume from the step that `latest RUN --good` names?

tests/data/crash has states in which crashes leave the runs of real frameworks. In each of them the module resume_FRAMEWORK
resumes from every step with the framework's own loader. A step is whole when all that is then in memory, leaf by leaf, is what a
fault-free save gives; it is near when random states alone differ. The program has to name the furthest whole step, or a near one
with a word about it. What the records of the states say of whole and near steps has to be true as well."""
import fnmatch
import hashlib
import importlib
import logging
import os
import random
import shutil
import sys
import tempfile

os.environ.update(CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
logging.disable(logging.CRITICAL)  # what frameworks say of torn files
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "../cli"))

from crash_states import ask, is_right, unpacked  # noqa: E402
from peerlib import DATA, PROGRAM  # noqa: E402

import numpy  # noqa: E402
import torch  # noqa: E402
from fixture_common import raw  # noqa: E402


# ------------------------------------------------------------------ what a resumed process holds

def leaves(value, path=()):
    """(name, digest) of all that is in nested dicts and lists."""
    if isinstance(value, (dict, list, tuple)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, path + (str(key),))
        return
    if isinstance(value, numpy.ndarray):
        value = torch.from_numpy(value)
    if isinstance(value, torch.Tensor):
        value = (value.dtype, tuple(value.shape), hashlib.sha256(raw(value)).hexdigest())
    yield ".".join(path), repr(value)


def differing(held, reference):
    return {name for name in held.keys() | reference.keys() if held.get(name) != reference.get(name)}


class Resumed:
    """What became of a resume: the step that training goes on from and all leaves, or why it failed."""

    def __init__(self, state=None, error=""):
        self.error = error
        self.step = state["step"] if state else None
        self.leaves = dict(leaves(state)) if state else {}


def content(path):
    """A digest of a file, or of all below a directory."""
    digest = hashlib.sha256()
    inside = sorted(os.path.join(at, name) for at, below, files in os.walk(path) for name in below + files)
    for file in [path] + inside:
        digest.update(os.path.relpath(file, path).encode() + b"\0")
        if os.path.isfile(file):
            with open(file, "rb") as opened:
                digest.update(hashlib.sha256(opened.read()).digest())
    return digest.digest()


class Framework:
    """Resumes from steps, from equal ones once."""

    def __init__(self, module, case):
        self.module, self.case = module, case
        self.known = {}  # content of a step: Resumed
        self.references = []  # those of fault-free saves

    def names(self, run):
        return sorted(fnmatch.filter(os.listdir(run), self.module.STEPS))

    def resume(self, path):
        key = content(path)
        if key not in self.known:
            self.known[key] = self._resume(path)
        return self.known[key]

    def _resume(self, path):
        # What a resume leaves out must not be there by chance.
        for seed in (torch.manual_seed, numpy.random.seed, random.seed):
            seed(99)
        with tempfile.TemporaryDirectory(prefix="resumed-") as scratch:
            try:
                return Resumed(self.module.resume(self.case, path, scratch))
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # whatever a framework raises for a torn file; DCP's exception is no Exception
                return Resumed(error="%s: %s" % (type(error).__name__, error))

    def learn(self, path):
        """What a fault-free save gives."""
        resumed = self.resume(path)
        assert not resumed.error, "a fault-free step does not resume: %s: %s" % (path, resumed.error)
        self.references.append(resumed)

    def differing(self, resumed):
        return min((differing(resumed.leaves, one.leaves) for one in self.references), key=len)

    def is_whole(self, resumed):
        return not resumed.error and not self.differing(resumed)

    def is_near(self, resumed):
        return not resumed.error and not self.is_whole(resumed) and all(name.startswith("rng.") for name in self.differing(resumed))

    def fate(self, resumed):
        if resumed.error:
            return "does not resume (%s)" % resumed.error.strip().splitlines()[-1][:200]
        wrong = sorted(self.differing(resumed))
        return "resumes at step %s, and differs in %s" % (resumed.step, ", ".join(wrong[:4])) if wrong else "resumes whole at step %s" % resumed.step


# ------------------------------------------------------------------ what has to agree

def truth(framework, run):
    """What became of each step, and what the state's record would say of that."""
    steps = {name: framework.resume(os.path.join(run, name)) for name in framework.names(run)}
    whole = [name for name, resumed in steps.items() if framework.is_whole(resumed)]
    near = [name for name, resumed in steps.items() if framework.is_near(resumed)]
    furthest = [name for name in whole if steps[name].step == max(steps[each].step for each in whole)]
    return steps, {"good": furthest[0] if furthest else None, "same": furthest, "whole": whole, "near": near}


def faults_of_state(framework, state, run):
    """Where the program, the framework and the record do not agree, in words."""
    steps, true = truth(framework, run)
    answer = ask(PROGRAM, run, "files")
    name, good = answer["name"], true["good"]
    wanted = "%s %s" % (good, framework.fate(steps[good])) if good else "no step is whole"
    if name is not None and name not in steps:
        yield "%s is named, which is no step; %s" % (name, wanted)
    elif not is_right(answer, true):
        yield "%s is named (%s), which %s; %s" % (name, answer.get("verdict"), framework.fate(steps[name]) if name else "is none", wanted)
    elif name and good and steps[good].step > steps[name].step:
        yield "%s is named, which lacks random states; %s" % (name, wanted)
    if name in steps and not os.path.samefile(answer["path"], os.path.join(run, name)):
        yield "%s is named, at %s" % (name, answer["path"])
    for what in ("whole", "near"):
        if sorted(true[what]) != sorted(state[what]):
            told = ["%s %s" % (each, framework.fate(steps[each])) for each in sorted({*true[what]} ^ {*state[what]}) if each in steps]
            yield "recorded as %s are %s, but %s" % (what, state[what], ", ".join(told) or true[what])


def faults_of_whole_run(framework, run):
    """Each step of a fault-free run is named once all later ones are gone."""
    with tempfile.TemporaryDirectory(prefix="shrinking-") as work:
        left = shutil.copytree(run, os.path.join(work, "run"), symlinks=True)
        while names := framework.names(left):
            steps = {name: framework.resume(os.path.join(left, name)).step for name in names}
            furthest = [name for name in names if steps[name] == max(steps.values())]
            named = ask(PROGRAM, left, "files")["name"]
            if named not in furthest:
                yield "%s is named in the fault-free run of %s" % (named, steps)
            for name in furthest:
                path = os.path.join(left, name)
                shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)


def faults_of(framework, states):
    # Before the last save began, and after it ended (DeepSpeed: after all but the tracker).
    cut = [each for each in states if each[0]["kind"] == "cut"]
    whole_runs = [cut[0], cut[-1]]
    for state, run in whole_runs:
        for name in framework.names(run):
            framework.learn(os.path.join(run, name))
    for state, run in whole_runs:
        yield from ((state, fault) for fault in faults_of_whole_run(framework, run))
    for state, run in states:
        yield from ((state, fault) for fault in faults_of_state(framework, state, run))


def check(module, case):
    """Returns how many faults there are."""
    framework = Framework(module, case)
    with unpacked(os.path.join(DATA, "crash"), case) as states:
        faults = list(faults_of(framework, states))
    for state, fault in faults:
        print("FAIL %s %s (%s): %s" % (case, state["state"], state["how"], fault))
    resumed = list(framework.known.values())
    failed = sum(bool(one.error) for one in resumed)
    whole, near = sum(map(framework.is_whole, resumed)), sum(map(framework.is_near, resumed))
    print("%s: %d states, %d faults; of %d steps that differ %d resume whole, %d but for random states, %d with other values, %d not at all"
          % (case, len(states), len(faults), len(resumed), whole, near, len(resumed) - whole - near - failed, failed), flush=True)
    return len(faults)


def main():
    module = importlib.import_module("resume_" + sys.argv[1])
    return 1 if sum(check(module, case) for case in module.CASES) else 0


if __name__ == "__main__":
    raise SystemExit(main())

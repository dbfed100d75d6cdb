"""Checkpoints written with OLMo's keys, read back by OLMo's own functions: the same nesting, tensors bit for bit, pickled
values; and OLMo's own file of what it read is ours, byte for byte."""
import glob
import importlib.util
import os
import pickle
import sys
import tempfile
import traceback
import types

from peercommon import DATA, cases, shardscope

import torch  # noqa: E402
from fixture_common import trec  # noqa: E402


def olmo_functions():
    """The package itself imports a trainer; its functions for these files need two of its modules only."""
    place = os.path.dirname(importlib.util.find_spec("olmo").origin)
    package = types.ModuleType("olmo")
    package.__path__ = [place]
    sys.modules["olmo"] = package
    return importlib.import_module("olmo.safetensors_util")


OLMO = olmo_functions()


def leaves(value, path=()):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, path + (key,))
    else:
        yield path, value


def same(one, other):
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return trec(one) == trec(other)
    return type(one) is type(other) and pickle.dumps(one) == pickle.dumps(other)


def check_file(path, found, bytes_too):
    """OLMo reads it, {name: record} goes to `found`; and writes it again: the same bytes. A trainer's state, which OLMo itself
    never writes to such a file, holds objects that Python may pickle in several ways: there the values are the same."""
    state = OLMO.safetensors_file_to_state_dict(path)
    for keys, value in leaves(state):
        if isinstance(value, torch.Tensor):
            found[".".join(str(k) for k in keys)] = trec(value)
    with tempfile.TemporaryDirectory() as place:
        again = os.path.join(place, "again.safetensors")
        OLMO.state_dict_to_safetensors_file(state, again)
        if bytes_too:
            with open(path, "rb") as a, open(again, "rb") as b:
                assert a.read() == b.read(), "%s: OLMo writes other bytes" % os.path.basename(path)
        one, other = dict(leaves(state)), dict(leaves(OLMO.safetensors_file_to_state_dict(again)))
        assert set(one) == set(other)
        for keys, value in one.items():
            assert isinstance(value, torch.Tensor) or repr(value) == repr(other[keys]), keys


def convert(source, words, wanted, bytes_too=True):
    """Converts, has OLMo read all files; each wanted {name: record} is there."""
    with tempfile.TemporaryDirectory() as place:
        out = os.path.join(place, "out")
        shardscope("convert", source, out, *words)
        files = glob.glob(os.path.join(out, "*.safetensors")) if os.path.isdir(out) else [out]
        assert files, "nothing was written"
        found = {}
        for path in files:
            part = {}
            prefix = os.path.basename(path)[:-len(".safetensors")]
            check_file(path, part, bytes_too and prefix != "train")
            for name, record in part.items():
                found[name] = found[prefix + "." + name] = record
        for name, want in wanted.items():
            got = found.get(name)
            assert got, "lost: %r" % name
            for key in ("dtype", "shape", "sha256"):
                assert got[key] == want[key], "%r: %s is %s, expected %s" % (name, key, got[key], want[key])
        return len(wanted)


def from_theirs():
    """What OLMo writes a moment ago is what we read."""
    state = {"model": {"w": torch.randn(5, 3), "b": torch.randn(3).bfloat16()}, "state": {0: {"step": torch.tensor(3.0)}},
             "param_groups": [{"lr": 0.1, "params": [0]}], "none": None, "deep": {"a": {"b": {"c": {1: torch.arange(4)}}}}}
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "model.safetensors")
        OLMO.state_dict_to_safetensors_file(state, path)
        digests = shardscope("digest", path, "--algorithm", "sha256")["tensors"]
        wanted = {".".join(str(k) for k in keys): trec(v)["sha256"] for keys, v in leaves(state) if isinstance(v, torch.Tensor)}
        assert digests == wanted, (digests, wanted)
        out = os.path.join(place, "out")
        shardscope("convert", path, out, "--to", "olmo")
        again = OLMO.safetensors_file_to_state_dict(os.path.join(out, "model.safetensors"))
        one, other = dict(leaves(state)), dict(leaves(again))
        assert set(one) == set(other), set(one) ^ set(other)
        for keys, value in one.items():
            assert same(value, other[keys]), keys


def main():
    failures = done = tensors = 0
    jobs = [("what OLMo writes now", lambda: from_theirs() or 1)]
    for name, path, expected in cases("olmo"):
        if "tensors" in expected:
            # Two keys of that one give the same displayed name: each file by itself keeps their order. And a list in it holds
            # a tensor, which every torch pickles in its own way.
            crazy = name == "crazy_keys"
            if crazy:
                path = os.path.join(path, "state.safetensors")
            jobs.append((name, lambda p=path, e=expected, b=not crazy: convert(p, ["--to", "olmo"], e["tensors"], b)))
    source = os.path.join(DATA, "genuine", "dcp", "t2.15.0-fsdp2-adam", "ckpt")
    flat = {n: {"dtype": t["dtype"], "shape": t["shape"], "sha256": s} for n, t, s in (
        (t["name"], t, shardscope("digest", source, "--algorithm", "sha256")["tensors"][t["name"]])
        for t in shardscope("ls", source)["tensors"] if t["name"].startswith("model."))}
    jobs.append(("a DCP checkpoint", lambda: convert(source, ["--to", "olmo", "--weights-only"], flat)))
    for title, job in jobs:
        try:
            tensors += job()
            done += 1
        except Exception as error:  # one failing case must not hide the others
            failures += 1
            print("FAIL %s: %s" % (title, error))
            if not isinstance(error, AssertionError):
                traceback.print_exc(limit=3)
    print("%d checkpoints read by OLMo, %d tensors equal, %d failures" % (done, tensors, failures))
    return 1 if failures or not tensors else 0


if __name__ == "__main__":
    raise SystemExit(main())

#!/usr/bin/env python3
"""make_flax.py OUT: files of MessagePack without Orbax: runs as flax.training.checkpoints wrote them (a file for each step), and streams of EasyLM
(EasyLM/checkpoint.py), and checkpoints of T5X (t5x/checkpoints.py: large parameters are zarr arrays beside the file). Needs flax, msgpack and tensorstore."""
import hashlib
import json
import os
import pathlib
import shutil
import sys

import flax.serialization
import ml_dtypes
import msgpack
import numpy as np
import tensorstore as ts
from flax.traverse_util import flatten_dict

ROOT = pathlib.Path(sys.argv[1])


def entry(a):
    a = np.asarray(a)
    return {"dtype": str(a.dtype), "shape": list(a.shape), "sha256": hashlib.sha256(a.tobytes()).hexdigest(), "nan": 0, "inf": 0}


def tree(seed, dtype=np.float32):
    r = np.random.Generator(np.random.PCG64(seed))
    a = lambda *s: r.standard_normal(s).astype(dtype)
    return {"step": np.int32(seed), "params": {"params": {"transformer": {"h": {"0": {"kernel": a(4, 6), "bias": a(6)}}, "ln_f": {"scale": a(4)}}}},
            "opt_state": {"0": {"mu": {"kernel": a(4, 6)}, "count": np.int32(seed)}, "1": {}}}


def expect(name, tensors, **more):
    expected = {"about": name, "framework": "flax " + flax.__version__, "format": "orbax", "world_size": 1, "mesh": None,
                "tensors": {".".join(k): entry(v) for k, v in flatten_dict(tensors).items()}, "objects": {}, **more}
    (ROOT / name / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def run(name, prefix, steps, cut=None, opened=None, **more):
    ckpt = ROOT / name / "ckpt"
    ckpt.mkdir(parents=True)
    for step in steps:
        data = flax.serialization.msgpack_serialize(tree(step))
        (ckpt / f"{prefix}{step}").write_bytes(data[:len(data) // 2] if step == cut else data)
    expect(name, tree(opened), file=f"{prefix}{opened}", **more)


def stream(name, stem, tensors, cut=0, **more):
    ckpt = ROOT / name / "ckpt"
    ckpt.mkdir(parents=True)
    packer = msgpack.Packer()
    data = b"".join(packer.pack((key, flax.serialization.to_bytes(value))) for key, value in flatten_dict(tensors).items())
    (ckpt / stem).write_bytes(data[:len(data) - cut])
    expect(name, tensors, **more)


def t5x(name, lost=None, cut=None, **more):
    step = ROOT / name / "ckpt" / "checkpoint_1000"
    step.mkdir(parents=True)
    r = np.random.Generator(np.random.PCG64(len(name)))
    a = lambda *s: r.standard_normal(s).astype(np.float32)
    tensors = {"target": {"encoder": {"layers_0": {"mlp": {"wi": {"kernel": a(8, 6)}}}, "encoder_norm": {"scale": a(6)}}},
               "state": {"step": np.int32(1000), "param_states": {"encoder": {"layers_0": {"mlp": {"wi": {"kernel": {"v": a(8, 6)}}}}, "encoder_norm": {"scale": {"v": a(6)}}}}}}

    def saved(tree, path):
        if isinstance(tree, dict):
            return {k: saved(v, path + [k]) for k, v in tree.items()}
        if tree.ndim < 2:
            return tree
        metadata = {"shape": list(tree.shape), "chunks": [tree.shape[0] // 2, *tree.shape[1:]], "compressor": {"id": "gzip"}}
        spec = {"driver": "zarr", "dtype": "float32", "kvstore": {"driver": "file", "path": str(step / ".".join(path))}, "metadata": metadata}
        ts.open(spec, create=True).result().write(tree).result()
        return {**spec, "kvstore": {"driver": "file", "path": ".".join(path) + "/"}}

    data = flax.serialization.msgpack_serialize({"version": 3, "optimizer": saved(tensors, [])})
    (step / "checkpoint").write_bytes(data)
    if lost and (step / lost).is_dir():
        shutil.rmtree(step / lost)
    elif lost:
        (step / lost).unlink()
    if cut:
        os.truncate(step / cut, (step / cut).stat().st_size // 2)
    expect(name, tensors, file="checkpoint_1000", **more)
    expected = json.loads((ROOT / name / "expected.json").read_text())
    expected["objects"] = {"version": 3}
    (ROOT / name / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def main():
    t5x("t5x")
    t5x("t5x-bad-chunk-lost", "target.encoder.layers_0.mlp.wi.kernel/1.0",
        findings=[{"kind": "missing-file", "file": "target.encoder.layers_0.mlp.wi.kernel/1.0"}])
    lost = "state.param_states.encoder.layers_0.mlp.wi.kernel.v"
    t5x("t5x-bad-array-lost", lost, findings=[{"kind": "missing-file", "file": lost}])
    lost = "target.encoder.layers_0.mlp.wi.kernel/.zarray"
    t5x("t5x-bad-description-lost", lost, findings=[{"kind": "missing-file", "file": lost}])
    cut = "target.encoder.layers_0.mlp.wi.kernel/0.0"
    t5x("t5x-bad-chunk-truncated", cut=cut, findings=[{"kind": "truncated", "file": cut}])
    t5x("t5x-bad-tree-truncated", cut="checkpoint", findings=[{"kind": "truncated", "file": "checkpoint"}])
    run("flax-run", "checkpoint_", [0, 10, 20], opened=10, cut=20)
    run("flax-run-prefix", "gan_", [5, 15], opened=15)
    stream("easylm-state", "streaming_train_state", tree(7), file="streaming_train_state")
    stream("easylm-params", "streaming_params_100", tree(8, ml_dtypes.bfloat16)["params"]["params"], file="streaming_params_100")
    stream("easylm-bad-truncated", "streaming_params", tree(9)["params"], cut=20, findings=[{"kind": "truncated", "file": "streaming_params"}])


if __name__ == "__main__":
    main()

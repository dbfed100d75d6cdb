#!/usr/bin/env python3
"""make_levanter.py OUT: checkpoints of Levanter, written with tensorstore as levanter/tensorstore_serialization.py has it written: an array for each leaf in
nested directories (zarr 2), or all in one OCDBT database (zarr 3), with manifest.json since 2026. Needs tensorstore."""
import hashlib
import json
import pathlib
import sys

import ml_dtypes
import numpy as np
import tensorstore as ts


def tree(seed):
    r = np.random.Generator(np.random.PCG64(seed))
    a = lambda *s: r.standard_normal(s).astype(np.float32)
    return {"model/embeddings/token_embeddings/weight": a(16, 6), "model/transformer/layers/stacked/self_attn/q_proj/weight": a(3, 8, 6).astype(ml_dtypes.bfloat16),
            "opt_state/inner_state/1/0/mu/model/embeddings/token_embeddings/weight": a(16, 6), "opt_state/count": np.array(seed, np.int32),
            "training_key": np.array([1, seed], np.uint32), "step": np.array(100, np.int32)}


def chunk_of(array):
    return [max(1, (n + 1) // 2) if d == 0 else n for d, n in enumerate(array.shape)]


def write(root, name, array, ocdbt, transaction):
    if ocdbt:
        spec = {"driver": "zarr3", "kvstore": {"driver": "ocdbt", "base": {"driver": "file", "path": str(root)}, "path": name + "/"},
                "metadata": {"shape": list(array.shape), "data_type": str(array.dtype), "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk_of(array)}}}}
    else:
        spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": str(root / name)}, "dtype": str(array.dtype),
                "metadata": {"shape": list(array.shape), "chunks": chunk_of(array), "compressor": {"id": "zstd", "level": 1}}}
    ts.open(spec, create=True, transaction=transaction).result().write(array).result()


def case(out, name, ocdbt=False, manifest=False, temporary=False, drop=(), more_listed=(), **more):
    place = pathlib.Path(out) / name
    root = place / "ckpt"
    root.mkdir(parents=True)
    leaves = tree(len(name))
    transaction = ts.Transaction() if ocdbt else None  # else nodes of the tree that the next write replaces stay behind
    for leaf, array in leaves.items():
        write(root, leaf, array, ocdbt, transaction)
    if transaction:
        transaction.commit_sync()
    if manifest:
        arrays = [{"path": k, "shape": list(v.shape), "dtype": str(v.dtype), "chunk_shape": chunk_of(v)} for k, v in leaves.items()]
        arrays += [{"path": k, "shape": [2], "dtype": "float32", "chunk_shape": [2]} for k in more_listed]
        (root / "manifest.json").write_text(json.dumps({"format_version": 1, "array_driver": "zarr3", "kvstore_driver": "ocdbt", "arrays": arrays}))
    (root / "metadata.json").write_text(json.dumps({"step": 100, "timestamp": "2026-05-01T10:00:00", "is_temporary": temporary}))
    for path in drop:
        (root / path).unlink()
    tensors = {k.replace("/", "."): {"dtype": str(v.dtype), "shape": list(v.shape), "sha256": hashlib.sha256(v.tobytes()).hexdigest(), "nan": 0, "inf": 0}
               for k, v in leaves.items()}
    expected = {"about": name, "framework": "tensorstore, after levanter", "format": "levanter", "world_size": 1, "mesh": None, "tensors": tensors,
                "objects": {"metadata": {"step": 100, "timestamp": "2026-05-01T10:00:00", "is_temporary": temporary}} if not drop else {}, **more}
    (place / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def main():
    out = sys.argv[1]
    case(out, "files")
    case(out, "ocdbt", ocdbt=True)
    case(out, "ocdbt-manifest", ocdbt=True, manifest=True)
    case(out, "files-temporary", temporary=True)
    case(out, "bad-not-committed", drop=["metadata.json"], findings=[{"kind": "missing-file", "file": "metadata.json"}])
    lost = "model/embeddings/token_embeddings/weight/1.0"
    case(out, "bad-chunk-lost", drop=[lost], findings=[{"kind": "missing-file", "file": lost}])
    lost = "model/embeddings/token_embeddings/weight/.zarray"
    case(out, "bad-description-lost", drop=[lost], findings=[{"kind": "missing-file", "file": lost}])
    case(out, "bad-array-lost", ocdbt=True, manifest=True, more_listed=["model/lm_head/weight"], findings=[{"kind": "missing-tensor", "tensor": "model.lm_head.weight"}])


if __name__ == "__main__":
    main()

"""torch_checkpointing itself loads what we write, into whole tensors on one rank, and what it loaded is compared with the source."""
import json
import os
import pickle
import tempfile
import traceback

from peerlib import cases, shardscope

from torch_checkpointing import CheckpointManager, ItemSpec
from torch_checkpointing.default_resharder import DefaultResharder
from torch_checkpointing.storage.filesystem import LocalFileSystemStorageConfig
import torch
from fixture_common import dtype, trec

CASES = [
    ("torch_checkpointing", "dp2tp2-torch", "fsdp=3"),
    ("torch_checkpointing", "fsdp3-safetensors", "dp=2,fsdp=2"),
    ("torch_checkpointing", "world1-mixed", "fsdp=2"),
    ("dcp", "t2.15.0-fsdp2-adam", "fsdp=2"),
    ("dcp", "t2.15.0-fsdp2-model", "ddp=2,fsdp=2"),
]


def nest(leaves):
    root = {}
    for path, value in leaves.items():
        at = root
        for part in path[:-1]:
            at = at.setdefault(part, {})
        at[path[-1]] = value
    return root


def run(family, name, mesh):
    _, source, expected = next(case for case in cases(family, name) if case[0] == name)
    with tempfile.TemporaryDirectory() as place:
        out = os.path.join(place, "out")
        shardscope("convert", source, out, "--to", "torch-checkpointing", "--mesh", mesh, "--variant", "cpu")
        with open(os.path.join(out, "metadata.pkl"), "rb") as f:
            metadata = pickle.load(f)
        compared = 0
        for item, about in metadata["metadata"].items():
            into = {}
            for text, groups in about["nested_path_to_metadata"].items():
                data = groups[0]["sharding_metadata"]["data"]
                into[tuple(json.loads(text))] = torch.empty(data["global_shape"], dtype=dtype(data["dtype"].replace("torch.", "")))
            config = CheckpointManager.Config.with_sync_save()
            config.items = {item: ItemSpec(resharder=DefaultResharder())}
            config.storage_config = LocalFileSystemStorageConfig(use_direct_io=False)
            manager = CheckpointManager(config)
            manager.load(out, into={item: nest(into)}, strict=not any(isinstance(p, int) for path in into for p in path))
            manager.close()
            for path, value in into.items():
                full = ".".join([item] + [str(p) for p in path])
                names = (full, full.replace("optimizer.", "optim.", 1), full.removeprefix("model."))
                want = next((expected["tensors"][n] for n in names if n in expected["tensors"]), None)
                assert want, full
                got = trec(value)
                for key in ("dtype", "shape", "sha256"):
                    assert got[key] == want[key], "%s: %s is %s, expected %s" % (full, key, got[key], want[key])
                compared += 1
        assert compared == len(expected["tensors"]), (compared, len(expected["tensors"]))
        print(family, name, mesh, "->", compared, "tensors")


def main():
    failures = 0
    for case in CASES:
        try:
            run(*case)
        except Exception:
            traceback.print_exc()
            print("failed:", *case)
            failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""What the peer tests with torch share: loading with the real framework, and comparing."""
import glob
import json
import os

from peercommon import DATA, PROGRAM, cases, converted, shardscope  # noqa: F401

import torch  # noqa: E402
from check_with_torch import dcp_load_all, flatten_plain  # noqa: E402
from fixture_common import TV, trec  # noqa: E402

torch.set_num_threads(1)


def load(kind, path):
    """{flat name: tensor} as the real framework reads what we wrote."""
    if kind == "dcp":
        return dcp_load_all(path)
    if kind == "torch":
        nested = torch.load(path, map_location="cpu", weights_only=True)
        flat = dict(flatten_plain(nested))
        if TV >= (2, 1):
            mapped = dict(flatten_plain(torch.load(path, map_location="cpu", weights_only=True, mmap=True)))
            assert set(mapped) == set(flat), "mmap=True gives other names"
            for name, value in flat.items():
                if isinstance(value, torch.Tensor):
                    assert trec(value) == trec(mapped[name]), "mmap=True gives other bytes for " + name
        return flat
    if kind == "safetensors":
        from safetensors.torch import load_file
        if os.path.isfile(path):
            return load_file(path)
        index = os.path.join(path, "model.safetensors.index.json")
        out = {}
        if not os.path.exists(index):
            files = sorted(glob.glob(os.path.join(path, "*.safetensors")))
            assert len(files) == 1, files
            return load_file(files[0])
        with open(index, encoding="utf-8") as f:
            document = json.load(f)
        for file in sorted(set(document["weight_map"].values())):
            part = load_file(os.path.join(path, file))
            for name in part:
                assert document["weight_map"][name] == file, name
            out.update(part)
        assert set(out) == set(document["weight_map"])
        total = sum(t.numel() * t.element_size() for t in out.values())
        assert document["metadata"]["total_size"] == total, "total_size"
        return out
    if kind == "dcp_hf":
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
        return dcp_load_all(path, HuggingFaceStorageReader(path))
    raise ValueError(kind)


def compare(expected, loaded, report):
    """Every expected tensor is equal, or the report says that it was left out or lives on under another name."""
    left = {e["name"] for e in report["left_out"]}
    changed = {e["name"] for e in report["plan"]["changed"]}
    compared = 0
    for name, want in expected["tensors"].items():
        if name not in loaded:
            assert name in left or name in changed, "lost without a word: %r" % name
            continue
        got = trec(loaded[name])
        for key in ("dtype", "shape", "sha256"):
            assert got[key] == want[key], "%r: %s is %s, expected %s" % (name, key, got[key], want[key])
        compared += 1
    return compared

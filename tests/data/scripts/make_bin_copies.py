#!/usr/bin/env python3
"""make_bin_copies.py OUT: colossalai/bad_copy_differs, a set of .bin files with an index, of which the second holds a tensor that the index takes from the first, with
other values. Needs torch."""
import hashlib
import json
import pathlib
import sys

import torch


def main():
    place = pathlib.Path(sys.argv[1]) / "bad_copy_differs"
    (place / "ckpt").mkdir(parents=True)
    torch.manual_seed(2)
    files = {"pytorch_model-00001-of-00002.bin": ["x.weight", "y.weight"], "pytorch_model-00002-of-00002.bin": ["x.weight", "z.weight"]}
    tensors, weight_map = {}, {}
    for file, names in files.items():
        state = {name: torch.randn(4, 4) for name in names}
        torch.save(state, place / "ckpt" / file)
        for name, tensor in state.items():
            if weight_map.setdefault(name, file) == file:
                tensors[name] = {"dtype": "float32", "shape": [4, 4], "sha256": hashlib.sha256(tensor.numpy().tobytes()).hexdigest(), "nan": 0, "inf": 0}
    index = {"metadata": {"total_size": 192}, "weight_map": weight_map}
    (place / "ckpt" / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    expected = {"about": "a tensor in two files of a set, with different values", "framework": "torch " + torch.__version__.split("+")[0], "format": "colossalai", "world_size": 1,
                "tensors": tensors, "objects": {}, "findings": [{"kind": "copy-differs", "file": "pytorch_model-00002-of-00002.bin", "tensor": "x.weight"}]}
    (place / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()

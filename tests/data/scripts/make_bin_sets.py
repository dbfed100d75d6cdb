#!/usr/bin/env python3
"""make_bin_sets.py OUT: torch_save/bin-set*, the sets of .bin files that Hugging Face's libraries write. OUT/bin-set is what Accelerate's save_model(safe_serialization=False)
writes; of it are made: one without its index, one that lacks a file. OUT/bin-set-copy-differs holds a tensor in two files, with other values. Needs accelerate."""
import json
import pathlib
import shutil
import sys

import accelerate
import torch
from fixture_common import trec

INDEX = "pytorch_model.bin.index.json"


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(10, 8)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(3)])
        self.norm = torch.nn.BatchNorm1d(8)
        self.head = torch.nn.Linear(8, 10, bias=False)
        self.head.weight = self.embed.weight


def write(place, about, tensors, findings=None):
    expected = {"about": about, "framework": f"accelerate {accelerate.__version__}, torch {torch.__version__.split('+')[0]}", "format": "torch_save", "world_size": 1,
                "mesh": None, "tensors": tensors, "objects": {}}
    if findings:
        expected["findings"] = findings
    (place / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def main():
    out = pathlib.Path(sys.argv[1])
    torch.manual_seed(2)
    model = Model()
    whole = out / "bin-set"
    accelerate.Accelerator(cpu=True).save_model(model, whole / "ckpt", max_shard_size=600, safe_serialization=False)
    tensors = {name: trec(tensor) for name, tensor in model.state_dict().items()}
    write(whole, "a model in several .bin files with an index; tied weights, buffers", tensors)

    for name, about, file, findings in (
            ("bin-set-no-index", "the files alone", INDEX, None),
            ("bin-set-lost", "the second file is gone", "pytorch_model-00002-of-00003.bin",
             [{"kind": "missing-file", "file": "pytorch_model-00002-of-00003.bin"}])):
        shutil.copytree(whole / "ckpt", out / name / "ckpt")
        (out / name / "ckpt" / file).unlink()
        write(out / name, about, tensors, findings)

    place = out / "bin-set-copy-differs"
    (place / "ckpt").mkdir(parents=True)
    files = {"pytorch_model-00001-of-00002.bin": ["x.weight", "y.weight"], "pytorch_model-00002-of-00002.bin": ["x.weight", "z.weight"]}
    tensors, weight_map = {}, {}
    for file, names in files.items():
        state = {name: torch.randn(4, 4) for name in names}
        torch.save(state, place / "ckpt" / file)
        for name, tensor in state.items():
            if weight_map.setdefault(name, file) == file:
                tensors[name] = trec(tensor)
    (place / "ckpt" / INDEX).write_text(json.dumps({"metadata": {"total_size": 192}, "weight_map": weight_map}))
    write(place, "a tensor in two files of a set, with different values", tensors,
          [{"kind": "copy-differs", "file": "pytorch_model-00002-of-00002.bin", "tensor": "x.weight"}])


if __name__ == "__main__":
    main()

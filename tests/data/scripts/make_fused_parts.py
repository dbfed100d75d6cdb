#!/usr/bin/env python3
"""make_fused_parts.py OUT: deepspeed/bad_fused_parts of tp2_z0_fp32 in this repository, with DeepSpeed's SubparamShape: one fused
parameter that fits its description, one whose parts do not have the sizes that are stated, and one of too many parts and rows."""
import hashlib
import json
import pathlib
import shutil
import sys

import torch
from deepspeed.checkpoint.universal_checkpoint import SubparamShape

FROM = pathlib.Path(__file__).resolve().parent.parent / "genuine" / "deepspeed" / "tp2_z0_fp32"


def main():
    place = pathlib.Path(sys.argv[1]) / "bad_fused_parts"
    shutil.copytree(FROM, place)
    torch.manual_seed(3)
    fits = torch.randn(3, 12, 2)
    misfit = torch.randn(12, 4)
    wide = torch.zeros(260, 512, dtype=torch.int8)
    sizes = {"fits": (3, (4, 8), 2), "misfit": ((4, 6), 4), "wide": (260, (2,) * 256)}
    cut = {"fits": (1, [4, 8]), "misfit": (0, [12]), "wide": (1, [2] * 256)}
    whole = {"fits": fits, "misfit": misfit, "wide": wide}
    for rank in range(2):
        file = next(place.glob(f"ckpt/*/mp_rank_0{rank}_model_states.pt"))
        state = torch.load(file, weights_only=False)
        state["optimizer"] = None
        for name, (dim, parts) in cut.items():
            pieces = [part.chunk(2, dim)[rank] for part in whole[name].split(parts, dim)]
            state["module"][name + ".weight"] = torch.cat(pieces, dim).contiguous()
        state["universal_checkpoint_info"] = {
            "tp_replicated_parameter_patterns": [r".*ln\.weight", r".*dense\.bias"],
            "parameter_with_row_parallelism_patterns": [r".*dense\.weight"],
            "parameter_with_sub_params": [SubparamShape(patterns=[name + r"\.weight"], shape=shape, partition_dim=cut[name][0]) for name, shape in sizes.items()]}
        torch.save(state, file)
    expected = json.loads((place / "expected.json").read_text())
    tensors = {n: t for n, t in expected["tensors"].items() if "optimizer" not in n}
    tensors["fits.weight"] = {"dtype": "float32", "shape": list(fits.shape), "sha256": hashlib.sha256(fits.numpy().tobytes()).hexdigest(), "nan": 0, "inf": 0}
    expected.update(about="a fused parameter whose parts have other sizes than stated, and one of too many parts", tensors=tensors,
                    findings=[{"kind": "fused-layout", "tensor": "misfit.weight"}, {"kind": "fused-layout", "tensor": "wide.weight"}])
    (place / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()

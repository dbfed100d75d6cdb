#!/usr/bin/env python3
"""make_xla_fsdp.py OUT: checkpoints of torch_xla's FSDP, laid out by hand after torch_xla/distributed/fsdp (xla_fully_sharded_data_parallel.py,
state_dict_utils.py): flat, padded and cut parameters, several flattened into one, or cut along dimension 0. Needs torch."""
import hashlib
import json
import pathlib
import sys

import torch

PAD = 8  # torch_xla pads to 128 elements


def entry(t):
    raw = t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return {"dtype": str(t.dtype)[6:], "shape": list(t.shape), "sha256": hashlib.sha256(raw).hexdigest(), "nan": 0, "inf": 0}


def shards(flat, world):
    each = -(-flat.numel() // (world * PAD)) * PAD
    return torch.nn.functional.pad(flat, (0, each * world - flat.numel())).chunk(world)


def save(out, name, world=4, flatten=False, rows=False, drop=(), **more):
    place = pathlib.Path(out) / name
    (place / "ckpt").mkdir(parents=True)
    whole = {"fc1.weight": torch.randn(10, 6), "fc1.bias": torch.randn(10), "fc2.weight": torch.randn(3, 10), "norm.scale": torch.randn(5).bfloat16()}
    info, flat_info, models = {}, {}, [{} for _ in range(world)]

    def put(key, parts, original, size):
        prefix, suffix = key.split("._fsdp_shard", 1)
        info.setdefault(prefix, {})["_fsdp_shard" + suffix] = {"_orig_name": original, "_orig_size": size, "_pad_size": 0}
        for model, part in zip(models, parts):
            model[key] = part.clone()

    if flatten:
        joined = [n for n in whole if n.startswith("fc")]
        flat = torch.cat([whole[n].reshape(-1) for n in joined])
        put("_fsdp_wrapped_module._fsdp_shard.flat_param_0", shards(flat, world), "flat_param_0", flat.shape)
        flat_info["_fsdp_wrapped_module.flat_param_0"] = (joined, [whole[n].shape for n in joined], [whole[n].numel() for n in joined])
    for n, t in whole.items():
        module, leaf = n.rsplit(".", 1)
        if flatten and n.startswith("fc"):
            continue
        parts = shards(t.reshape(-1), world)
        if rows and t.dim() > 1:
            each = -(-t.shape[0] // world)
            parts = torch.nn.functional.pad(t, (0, 0, 0, each * world - t.shape[0])).chunk(world)
        put(f"_fpw_module.{module}._fpw_module._fsdp_shard.{leaf}", parts, leaf, t.shape)
    whole["norm.mean"] = torch.randn(5)
    for rank, model in enumerate(models):
        model["_fpw_module.norm.mean"] = whole["norm.mean"]
        meta = {"shard_info": info, "flatten_info": flat_info, "buffer_info": {}, "world_size": world, "rank": rank}
        torch.save({"model": model, "shard_metadata": meta, "epoch": 3}, str(place / "ckpt" / f"ckpt_rank-{rank:08}-of-{world:08}.pth"))
    for file in drop:
        (place / "ckpt" / file).unlink()
    tensors = {n: entry(t) for n, t in whole.items()}
    tensors["norm.mean"]["buffer"] = True
    expected = {"about": name, "framework": "by hand", "format": "xla_fsdp", "world_size": world, "mesh": {"dims": ["fsdp"], "shape": [world]},
                "tensors": tensors, "objects": {} if drop else {"epoch": 3}, **more}
    (place / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def main():
    out = sys.argv[1]
    torch.manual_seed(11)
    save(out, "flat-w4")
    save(out, "flattened-w2", 2, flatten=True)
    save(out, "rows-w4", rows=True)
    lost = "ckpt_rank-00000001-of-00000002.pth"
    save(out, "bad-rank-lost", 2, drop=[lost], findings=[{"kind": "missing-file", "file": lost}])


if __name__ == "__main__":
    main()

"""Writes tests/data/transformer_engine: ranks of Megatron (--ckpt-format torch) whose weights are tensors of Transformer Engine
(--fp8-param-gather), pickled as its classes do, and the weights as it dequantizes them.

The library itself needs a GPU. What is pickled follows its sources: pytorch/tensor/float8_tensor.py, mxfp8_tensor.py and
float8_blockwise_tensor.py (__reduce_ex__); the number of a dtype is that of NVTEDType.

    python make_transformer_engine.py DIRECTORY"""
import argparse
import hashlib
import io
import json
import os
import sys
import types

import torch

HIDDEN, INNER, HEADS, RANKS = 32, 256, 4, 2


def module(name, **members):
    made = types.ModuleType(name)
    for key, member in members.items():
        setattr(made, key, member)
        if isinstance(member, type):
            member.__module__, member.__qualname__ = name, key
    for end in range(name.count(".") + 1):
        sys.modules.setdefault(".".join(name.split(".")[:end + 1]), types.ModuleType(name))
    sys.modules[name] = made


class DType:
    """Pickles as a pybind11 enumeration."""

    def __init__(self, number):
        self.number = number

    def __getstate__(self):
        return self.number


class Pickled:
    def __init__(self, *arguments):
        self.arguments = arguments

    @classmethod
    def _make_in_reduce_ex(cls, *arguments):
        return cls(*arguments)

    def __reduce_ex__(self, protocol):
        return self._make_in_reduce_ex, self.arguments


class Float8Tensor(Pickled):
    pass


class MXFP8Tensor(Pickled):
    pass


class Float8BlockwiseQTensor(Pickled):
    pass


class NVFP4Tensor(Pickled):
    pass


module("transformer_engine_torch", DType=DType)
module("transformer_engine.pytorch.tensor.float8_tensor", Float8Tensor=Float8Tensor)
module("transformer_engine.pytorch.tensor.mxfp8_tensor", MXFP8Tensor=MXFP8Tensor)
module("transformer_engine.pytorch.tensor.float8_blockwise_tensor", Float8BlockwiseQTensor=Float8BlockwiseQTensor)
module("transformer_engine.pytorch.tensor.nvfp4_tensor", NVFP4Tensor=NVFP4Tensor)


def values(rows, columns):
    return (torch.randn(rows, columns) * 50).to(torch.float8_e4m3fn)


def whole(rows, columns, old=False):
    """One scale. Releases before 2.0 state no shape, and count E4M3 as 6."""
    data, scale = values(rows, columns), torch.rand(1) + 0.1
    made = Float8Tensor(data.view(torch.uint8), DType(6 if old else 7), scale, torch.bfloat16, *([] if old else [torch.Size((rows, columns))]))
    return made, data.float() * scale


def padded(scales, rows, columns):
    out = torch.full(((scales.shape[0] + rows - 1) // rows * rows, (scales.shape[1] + columns - 1) // columns * columns), 3, dtype=scales.dtype)
    out[:scales.shape[0], :scales.shape[1]] = scales
    return out


def mx(rows, columns):
    data, powers = values(rows, columns), torch.randint(120, 134, (rows, columns // 32), dtype=torch.uint8)
    made = MXFP8Tensor(data.view(torch.uint8), padded(powers, 128, 4), None, None, DType(7), torch.bfloat16, torch.Size((rows, columns)), None, False)
    return made, data.float() * torch.exp2(powers.float() - 127).repeat_interleave(32, 1)


def blocks(rows, columns):
    data, scales = values(rows, columns), torch.rand((rows + 127) // 128, (columns + 127) // 128) + 0.1
    made = Float8BlockwiseQTensor(torch.Size((rows, columns)), data.view(torch.uint8), padded(scales, 1, 4), None, None, DType(7), torch.bfloat16, None, True)
    grid = scales.repeat_interleave(128, 0)[:rows].repeat_interleave(128, 1)[:, :columns]
    return made, data.float() * grid


def joined(name, parts):
    if "linear_fc1" in name:
        return torch.cat([part.chunk(2)[half] for half in (0, 1) for part in parts])
    return torch.cat(parts, 0 if "linear_qkv" in name else 1)


def main():
    torch.manual_seed(3)
    place = sys.argv[1]
    weights = {"self_attention.linear_qkv": (3 * HIDDEN // RANKS, HIDDEN), "self_attention.linear_proj": (HIDDEN, HIDDEN // RANKS),
               "mlp.linear_fc1": (2 * INNER // RANKS, HIDDEN), "mlp.linear_fc2": (HIDDEN, INNER // RANKS)}
    kinds = [[whole] * 4, [whole, lambda r, c: whole(r, c, True), blocks, mx]]
    parts, models = {}, [{} for _ in range(RANKS)]
    for layer, makers in enumerate(kinds):
        for (name, shape), make in zip(weights.items(), makers):
            full = "decoder.layers.%d.%s" % (layer, name)
            for model in models:
                model[full + ".weight"], plain = make(*shape)
                model[full + "._extra_state"] = io.BytesIO(b"scale_fwd and amax_history_fwd are in here")
                parts.setdefault(full + ".weight", []).append(plain)
    arguments = argparse.Namespace(tensor_model_parallel_size=RANKS, pipeline_model_parallel_size=1, num_layers=len(kinds), hidden_size=HIDDEN,
                                   ffn_hidden_size=INNER, num_attention_heads=HEADS, swiglu=True, world_size=RANKS, rank=0)
    for rank, model in enumerate(models):
        model["decoder.final_layernorm.weight"] = torch.ones(HIDDEN)
        directory = os.path.join(place, "ranks", "mp_rank_%02d" % rank)
        os.makedirs(directory, exist_ok=True)
        torch.save({"args": arguments, "checkpoint_version": 3.0, "iteration": 1, "model": model}, os.path.join(directory, "model_optim_rng.pt"))
    four = NVFP4Tensor(torch.Size((32, 32)), torch.zeros(32, 16, dtype=torch.uint8), torch.ones(32, 2, dtype=torch.uint8), DType(10), torch.bfloat16)
    made, plain = mx(40, 64)
    torch.save({"four.weight": four, "swizzled.weight": MXFP8Tensor(*made.arguments[:-1], True), "mx.weight": made}, os.path.join(place, "model.pt"))
    answers = {"ranks": {name: joined(name, own) for name, own in parts.items()}, "model.pt": {"mx.weight": plain}}
    with open(os.path.join(place, "expected.json"), "w", encoding="utf-8") as out:
        json.dump({of: {name: hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest() for name, tensor in tensors.items()} for of, tensors in answers.items()}, out, indent=1)


if __name__ == "__main__":
    main()

"""Quantized weights as the tensors that they stand for (--dequantize), bit for bit as their own libraries compute
them: transformers, compressed-tensors, Model Optimizer, bitsandbytes, torchao. GPTQ's and AWQ's kernels are for GPUs: they are
compared with the formulas of GPTQModel (nn_modules/qlinear/__init__.py) and AutoAWQ (utils/packing_utils.py).
With an adapter (--adapter) they are what peft makes of the library's float32 weights, rounded once.

quantized_peer.py --write DIRECTORY writes small cases with the libraries' answers as digests: tests/data/quantized."""
import hashlib
import json
import os
import sys
import tempfile

import bitsandbytes.functional as bnb
import torch
from bitsandbytes.backends.default.ops import _dequantize_4bit_compute
from bitsandbytes.backends.utils import _get_4bit_code
from compressed_tensors.compressors.mxfp4.base import MXFP4PackedCompressor
from compressed_tensors.compressors.naive_quantized.base import NaiveQuantizationCompressor
from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
from compressed_tensors.entrypoints.convert.converters.fp8block_dequantizer import FP8BlockDequantizer
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from modelopt.torch.quantization.qtensor import FP8QTensor, NVFP4QTensor
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
from torchao.quantization import (
    Float8WeightOnlyConfig, Int8DynamicActivationInt8WeightConfig, Int8DynamicActivationIntxWeightConfig, Int8WeightOnlyConfig, IntxUnpackedToInt8Tensor,
    IntxWeightOnlyConfig, PerGroup, quantize_)
from torchao.quantization.quant_primitives import _DTYPE_TO_QVALUE_BOUNDS, dequantize_affine
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from peerlib import shardscope

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
E4M3 = torch.float8_e4m3fn
SMALL = "--write" in sys.argv


def codes(*shape, dtype=torch.uint8):
    info = torch.iinfo(dtype)
    return torch.randint(info.min, info.max + 1, shape, dtype=dtype)


def fp8(*shape, dtype=E4M3):
    return (torch.randn(shape) * 50).to(dtype)


def scales(*shape, dtype=torch.float32):
    return (torch.rand(shape) * 0.01 + 0.001).to(dtype)


def scheme(**args):
    return QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**args))


def same(function):
    """The library's answer in each dtype."""
    return {name: function(dtype) for name, dtype in DTYPES.items()}


def case_fp8_blocks():
    weight, scale = fp8(140, 130) if SMALL else fp8(300, 200), scales(2, 2) if SMALL else scales(3, 2)
    experts, grid = fp8(2, 128, 128) if SMALL else fp8(3, 256, 128), scales(2, 1, 1, dtype=torch.bfloat16) if SMALL else scales(3, 2, 1, dtype=torch.bfloat16)
    powers = torch.randint(120, 130, (1, 2) if SMALL else (2, 4), dtype=torch.uint8)
    tensors = {"a.weight": weight, "a.weight_scale_inv": scale, "experts.gate_up_proj": experts,
               "experts.gate_up_proj_scale_inv": grid, "b.weight": fp8(128, 256) if SMALL else fp8(256, 512),
               "b.weight_scale_inv": powers.view(torch.float8_e8m0fnu)}
    library = Fp8Dequantize(None)

    def padded(dtype):
        block = FP8BlockDequantizer.__new__(FP8BlockDequantizer)
        block.weight_block_size, block.dtype = [128, 128], dtype
        return block._create_dequantized_weight(weight, scale)
    return tensors, {"quant_method": "fp8", "weight_block_size": [128, 128]}, {
        "a.weight": same(padded),
        "experts.gate_up_proj": same(lambda d: library._dequantize_one(experts, grid, d)),
        "b.weight": same(lambda d: library._dequantize_one(tensors["b.weight"], powers.view(torch.float8_e8m0fnu), d))}


def case_fp8_scales():
    tensors, expected = {}, {}
    for name, dtype, shape in (("tensor", torch.float32, (1,)), ("scalar", torch.float32, ()), ("channel", torch.float32, (96, 1)),
                               ("half", torch.bfloat16, (96, 1)), ("fp16", torch.float16, (96, 1)), ("block", torch.float32, (3, 2))):
        weight = fp8(96, 64, dtype=torch.float8_e5m2 if name == "scalar" else E4M3)
        scale = scales(*shape, dtype=dtype)
        tensors[name + ".weight"], tensors[name + ".weight_scale"] = weight, scale
        strategy = {"block": "block", "tensor": "tensor", "scalar": "tensor"}.get(name, "channel")
        made = NaiveQuantizationCompressor.decompress({"weight": weight, "weight_scale": scale}, scheme(
            num_bits=8, type="float", strategy=strategy, block_structure=[32, 32] if name == "block" else None))["weight"]
        expected[name + ".weight"] = same(made.to)
    weights = {"strategy": "block", "block_structure": [32, 32]}
    return tensors, {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}, expected


def case_fp8_modelopt():
    weight, scale = fp8(64, 48), scales(1)
    tensor = FP8QTensor(weight.shape, torch.bfloat16, weight)
    return {"a.weight": weight, "a.weight_scale": scale, "a.input_scale": scales(1)}, {"quant_method": "modelopt"}, {
        "a.weight": same(lambda d: tensor.dequantize(d, scale=scale))}


def case_int8():
    tensors, expected = {}, {}
    for name, dtype, zeros in (("plain", torch.float32, False), ("zeros", torch.bfloat16, True), ("half", torch.float16, True)):
        state = {"weight": codes(80, 64, dtype=torch.int8), "weight_scale": scales(80, 1, dtype=dtype)}
        if zeros:
            state["weight_zero_point"] = torch.randint(-20, 20, (80, 1), dtype=torch.int8)
        tensors.update({name + "." + key: value for key, value in state.items()})
        expected[name + ".weight"] = same(NaiveQuantizationCompressor.decompress(
            state, scheme(num_bits=8, strategy="channel", symmetric=not zeros))["weight"].to)
    return tensors, {"quant_method": "compressed-tensors"}, expected


def case_mxfp4():
    blocks, powers = codes(3, 48, 2, 16), torch.randint(100, 140, (3, 48, 2), dtype=torch.uint8)
    powers[0, 0, 0], powers[0, 1, 0], powers[1, 0, 1] = 0, 200 if SMALL else 255, 254
    big, wide = codes(2, 16 if SMALL else 4096, 40, 16), torch.randint(100, 140, (2, 16 if SMALL else 4096, 40), dtype=torch.uint8)
    return {"experts.down_proj_blocks": blocks, "experts.down_proj_scales": powers, "experts.gate_up_proj_blocks": big,
            "experts.gate_up_proj_scales": wide, "experts.down_proj_bias": torch.randn(3, 48)}, {"quant_method": "mxfp4"}, {
        "experts.down_proj": same(lambda d: convert_moe_packed_tensors(blocks, powers, dtype=d)),
        "experts.gate_up_proj": same(lambda d: convert_moe_packed_tensors(big, wide, dtype=d))}


def case_mxfp4_packed():
    state = {"weight_packed": codes(64, 48), "weight_scale": torch.randint(110, 130, (64, 3), dtype=torch.uint8)}
    made = MXFP4PackedCompressor.decompress(state, scheme(num_bits=4, type="float", strategy="group", group_size=32))["weight"]
    return {"a." + key: value for key, value in state.items()}, {"quant_method": "compressed-tensors"}, {"a.weight": same(made.to)}


def case_nvfp4():
    packed, scale, second = codes(64, 48), fp8(64, 6).float().abs().to(E4M3), scales(1)
    tensor = NVFP4QTensor(torch.Size((64, 96)), torch.bfloat16, packed)
    scalar = torch.tensor(0.0021)
    return {"a.weight": packed, "a.weight_scale": scale, "a.weight_scale_2": second, "b.weight": packed, "b.weight_scale": scale,
            "b.weight_scale_2": scalar}, {"quant_method": "modelopt"}, {
        "a.weight": same(lambda d: tensor.dequantize(d, scale=scale, double_scale=second, block_sizes={-1: 16})),
        "b.weight": same(lambda d: tensor.dequantize(d, scale=scale, double_scale=scalar, block_sizes={-1: 16}))}


def case_nvfp4_packed():
    state = {"weight_packed": codes(64, 48), "weight_scale": fp8(64, 6).float().abs().to(E4M3), "weight_global_scale": torch.tensor([377.3])}
    made = NVFP4PackedCompressor.decompress(state, scheme(num_bits=4, type="float", strategy="tensor_group", group_size=16))["weight"]
    assert made.dtype == torch.bfloat16
    # The library always gives bfloat16; in other dtypes its formula is not rounded to that first.
    table = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])
    values = torch.stack((table[(state["weight_packed"] & 15).long()], table[(state["weight_packed"] >> 4).long()]), -1).reshape(64, 6, 16)
    whole = (values * (state["weight_scale"].float() / state["weight_global_scale"]).unsqueeze(-1)).reshape(64, 96)
    assert torch.equal(whole.bfloat16(), made)
    return {"a." + key: value for key, value in state.items()}, {"quant_method": "compressed-tensors"}, {"a.weight": same(whole.to)}


def case_packed():
    tensors, expected = {}, {}
    for bits in (2, 4, 8):
        for name, symmetric, strategy, dtype, order in (("group", True, "group", torch.bfloat16, False), ("zeros", False, "group", torch.float16, False),
                                                        ("channel", False, "channel", torch.float32, False), ("order", False, "group", torch.bfloat16, True)):
            rows, columns = 40, 96
            args = QuantizationArgs(num_bits=bits, symmetric=symmetric, strategy=strategy, group_size=32 if strategy == "group" else None)
            how = QuantizationScheme(targets=["Linear"], weights=args)
            groups = 3 if strategy == "group" else 1
            low = -(1 << (bits - 1))
            state = {"weight": torch.randn(rows, columns), "weight_scale": scales(rows, groups, dtype=dtype) * 300}
            if not symmetric:
                state["weight_zero_point"] = torch.randint(low, -low, (rows, groups), dtype=torch.int8)
            state = PackedQuantizationCompressor.compress(state, how)
            made = PackedQuantizationCompressor.decompress(state, how)["weight"]
            if order:  # which releases before 0.20 wrote
                group = torch.randperm(columns) // 32
                state["weight_g_idx"] = group.to(torch.int32)
                values = unpack_from_int32(state["weight_packed"], bits, (rows, columns)).to(dtype)
                zeros = unpack_from_int32(state["weight_zero_point"], bits, (rows, groups), packed_dim=0).to(dtype)
                made = (values - zeros[:, group]) * state["weight_scale"][:, group]
            prefix = "%s%d." % (name, bits)
            tensors.update({prefix + key: value for key, value in state.items() if value is not None})
            expected[prefix + "weight"] = same(made.to)
    return tensors, {"quant_method": "compressed-tensors"}, expected


def words(values, bits, dim):
    """Values of few bits, packed along a dimension into int32, the first in the lowest bits."""
    per = 32 // bits
    values = values.movedim(dim, -1).long()
    values = values.reshape(*values.shape[:-1], -1, per)
    packed = (values << (torch.arange(per) * bits)).sum(-1)
    return torch.where(packed >= 1 << 31, packed - (1 << 32), packed).to(torch.int32).movedim(-1, dim).contiguous()


def gptq(bits, order, v2, dtype):
    inputs, outputs, groups = 96, 64, 3
    weight = torch.randint(0, 1 << bits, (inputs, outputs))
    zeros = torch.randint(0 if v2 else 1, 1 << bits, (groups, outputs))
    scale = scales(groups, outputs, dtype=dtype)
    group = torch.randperm(inputs) // 32 if order else torch.arange(inputs) // 32
    made = scale[group] * (weight - zeros[group]).to(torch.int16)
    return {"qweight": words(weight, bits, 0), "qzeros": words(zeros if v2 else zeros - 1, bits, 1), "scales": scale,
            "g_idx": group.to(torch.int32)}, made.t().contiguous()


def case_gptq(v2=False):
    tensors, expected = {}, {}
    for bits in (2, 4, 8):
        for order in (False, True):
            for dtype in (torch.float16, torch.bfloat16):
                state, made = gptq(bits, order, v2, dtype)
                prefix = "m%d%d%s." % (bits, order, str(dtype)[-2:])
                tensors.update({prefix + key: value for key, value in state.items()})
                expected[prefix + "weight"] = same(made.to)
    return tensors, {"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2" if v2 else "gptq"}, expected


def case_gptq_v2():
    return case_gptq(True)


def case_awq():
    inputs, outputs, groups = 96, 64, 3
    weight, zeros = torch.randint(0, 16, (inputs, outputs)), torch.randint(0, 16, (groups, outputs))
    scale = scales(groups, outputs, dtype=torch.float16)
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])

    def ordered(values):
        return words(values.reshape(values.shape[0], -1, 8)[:, :, order].reshape(values.shape), 4, 1)
    group = torch.arange(inputs) // 32
    made = ((weight - zeros[group]).to(torch.int8) * scale[group]).t().contiguous()
    return {"m.qweight": ordered(weight), "m.qzeros": ordered(zeros), "m.scales": scale, "m.bias": torch.randn(outputs)}, {
        "quant_method": "awq", "bits": 4, "version": "gemm"}, {"m.weight": same(made.to)}


def case_bnb4():
    tensors, expected = {}, {}
    for kind in ("nf4", "fp4"):
        for nested in (False, True):
            for shape in ((24, 64), (33, 7), (6, 96)) if SMALL else ((96, 64), (33, 7), (6, 96), (512, 1024)):
                weight = torch.randn(shape).to(torch.bfloat16)
                packed, state = bnb.quantize_4bit(weight, quant_type=kind, compress_statistics=nested, blocksize=64)
                name = "%s%d%d.weight" % (kind, nested, shape[0])
                tensors[name] = packed
                tensors.update({name + "." + key: value.contiguous() for key, value in state.as_dict(packed=True).items()})

                def library(dtype, packed=packed, state=state):
                    state.dtype = dtype
                    if state.shape[-1] % 64 == 0 or state.shape[-1] % 2:
                        return bnb.dequantize_4bit(packed, state)
                    # Its kernel for processors takes rows that blocks do not divide wrongly; its portable code is right.
                    scale = bnb.dequantize_blockwise(state.absmax, state.state2) + state.offset if state.nested else state.absmax
                    return _dequantize_4bit_compute(packed.reshape(-1), scale, _get_4bit_code(state.quant_type, packed.device), 64, state.shape, dtype)
                # Which zero fp4 makes of its negative one depends on the kernel that the processor has.
                expected[name] = same(library if kind == "nf4" else lambda dtype, library=library: library(dtype) + 0.0)
    weight = torch.randn(64, 64).to(torch.bfloat16)
    packed, state = bnb.quantize_4bit(weight, quant_type="nf4", quant_storage=torch.bfloat16)
    tensors["s.weight"] = packed
    tensors.update({"s.weight." + key: value.contiguous() for key, value in state.as_dict(packed=True).items()})

    def stored(dtype):
        state.dtype = dtype
        return bnb.dequantize_4bit(packed, state)
    expected["s.weight"] = same(stored)
    return tensors, {"quant_method": "bitsandbytes"}, expected


def case_bnb8():
    codes8, stats, _ = bnb.int8_vectorwise_quant(torch.randn(64, 48).half())
    return {"m.weight": codes8, "m.SCB": stats, "m.weight_format": torch.tensor(0, dtype=torch.uint8)}, {
        "quant_method": "bitsandbytes"}, {"m.weight": same(bnb.int8_vectorwise_dequant(codes8, stats).to)}


def torchao_weights():
    """Linear layers as torchao leaves them in a state dict, and their weights as it computes them."""
    configs = {"int8": Int8WeightOnlyConfig(), "int8_dynamic": Int8DynamicActivationInt8WeightConfig(), "float8": Float8WeightOnlyConfig(),
               "int4": IntxWeightOnlyConfig(weight_dtype=torch.int4), "groups": Int8DynamicActivationIntxWeightConfig(weight_granularity=PerGroup(96))}
    state, expected = {}, {}
    for name, config in configs.items():
        model = torch.nn.Sequential(torch.nn.Linear(192, 40, dtype=torch.bfloat16))
        quantize_(model, config)
        weight = model[0].weight
        state[name + ".weight"], state[name + ".bias"] = weight.detach(), model[0].bias.detach()
        if isinstance(weight, IntxUnpackedToInt8Tensor):
            low, high = _DTYPE_TO_QVALUE_BOUNDS[weight.target_dtype]
            expected[name + ".weight"] = same(lambda dtype, w=weight: dequantize_affine(w.qdata, w.block_size, w.scale, w.zero_point, torch.int8, low, high, output_dtype=dtype))
        else:
            expected[name + ".weight"] = same(lambda dtype, w=weight: w.dequantize(dtype))
    return state, expected


def case_torchao():
    state, expected = torchao_weights()
    return flatten_tensor_state_dict(state)[0], {"quant_method": "torchao"}, expected


def case_torchao_pickled():
    state, expected = torchao_weights()
    return state, {"quant_method": "torchao"}, expected


def bits(tensor):
    return tensor.contiguous().view(torch.int32 if tensor.element_size() == 4 else torch.int16)


def store(tensors, place):
    if any(type(value) is not torch.Tensor for value in tensors.values()):
        torch.save(tensors, os.path.join(place, "model.pt"))
    else:
        save_file({key: value.contiguous().clone() for key, value in tensors.items()}, os.path.join(place, "model.safetensors"))


def write(place):
    torch.manual_seed(5)
    for name, case in sorted((n[5:], f) for n, f in globals().items() if n.startswith("case_")):
        tensors, config, expected = case()
        os.makedirs(os.path.join(place, name), exist_ok=True)
        store(tensors, os.path.join(place, name))
        with open(os.path.join(place, name, "config.json"), "w", encoding="utf-8") as file:
            json.dump({"model_type": "x", "quantization_config": config, "hidden_size": 4}, file)
        answers = {key: {"shape": list(by["bf16"].shape), **{word: hashlib.sha256(bits(by[word]).numpy().tobytes()).hexdigest() for word in DTYPES}}
                   for key, by in expected.items()}
        with open(os.path.join(place, name, "expected.json"), "w", encoding="utf-8") as file:
            json.dump(answers, file, indent=0)
    return 0


def adapted(expected, adapter):
    """Every other matrix as a layer with a trained LoRA, which is saved: its weights after peft's own merge, in float32."""
    names = [key for key, answers in expected.items() if key.endswith(".weight") and answers["fp32"].ndim == 2 and answers["fp32"].isfinite().all()
             and not any(hasattr(torch.nn.Module, part) for part in key.split("."))][::2]
    root = torch.nn.Module()
    for name in names:
        *path, last = name.removesuffix(".weight").split(".")
        inner = root
        for part in path:
            inner = inner._modules.setdefault(part, torch.nn.Module())
        weight = expected[name]["fp32"]
        inner.add_module(last, torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False))
        inner._modules[last].weight.data = weight.clone()
    if not names:
        return {}
    tuned = get_peft_model(root, LoraConfig(r=4, lora_alpha=6, target_modules=[name.removesuffix(".weight") for name in names]))
    with torch.no_grad():
        for name, tensor in tuned.named_parameters():
            if "lora_" in name:
                tensor.copy_(torch.randn_like(tensor) * 0.3)
    tuned.save_pretrained(adapter)
    return tuned.merge_and_unload().state_dict()


def merges(name, model, place, expected):
    failed, adapter = 0, os.path.join(place, "adapter")
    merged = adapted(expected, adapter)
    for word, dtype in DTYPES.items() if merged else ():
        out = os.path.join(place, word + "-merged")
        shardscope("convert", model, out, "--to", "safetensors", "--dequantize", word, "--adapter", adapter)
        made = load_file(os.path.join(out, "model.safetensors"))
        for key, answers in expected.items():
            want = merged[key].to(dtype) if key in merged else answers[word]
            nan = torch.isnan(want)
            differs = ((bits(made[key]) != bits(want)) & ~nan) | (nan != torch.isnan(made[key]))
            if differs.any():
                at = tuple(differs.nonzero()[0].tolist())
                print("%s %s %s: %d of %d are not what peft merges, first at %s: %r, not %r" % (name, key, word, differs.sum(), want.numel(), at, made[key][at].item(), want[at].item()))
                failed += 1
    print("%s: an adapter for %d of %d weights" % (name[5:], len(merged), len(expected)))
    return failed


def main():
    if SMALL:
        return write(sys.argv[sys.argv.index("--write") + 1])
    torch.manual_seed(5)
    failed = 0
    for name, case in sorted((n, f) for n, f in globals().items() if n.startswith("case_")):
        tensors, config, expected = case()
        with tempfile.TemporaryDirectory() as place:
            model = os.path.join(place, "model")
            os.mkdir(model)
            store(tensors, model)
            with open(os.path.join(model, "config.json"), "w", encoding="utf-8") as file:
                json.dump({"model_type": "x", "quantization_config": config, "hidden_size": 4}, file)
            said = shardscope("info", model)["quantized"]
            assert sum(share["weights"] for share in said) == len(expected), (name, said)
            for word in DTYPES:
                out = os.path.join(place, word)
                report = shardscope("convert", model, out, "--to", "safetensors", "--dequantize", word, "--memory", "128MiB")
                made = load_file(os.path.join(out, "model.safetensors"))
                computed = {entry["name"] for entry in report["plan"]["made"]}
                assert computed == set(expected), (name, computed ^ set(expected))
                with open(os.path.join(out, "config.json"), encoding="utf-8") as file:
                    assert list(json.load(file)) == ["model_type", "hidden_size"], name
                for key, answers in expected.items():
                    want, got = answers[word], made[key]
                    nan = torch.isnan(want)
                    if got.shape != want.shape or got.dtype != want.dtype or not torch.equal(nan, torch.isnan(got)):
                        print("%s %s %s: %s %s is not %s %s" % (name, key, word, got.dtype, list(got.shape), want.dtype, list(want.shape)))
                        failed += 1
                        continue
                    differs = (bits(got) != bits(want)) & ~nan
                    if differs.any():
                        at = differs.nonzero()[0].tolist()
                        print("%s %s %s: %d of %d differ, first at %s: %r, not %r" % (
                            name, key, word, differs.sum(), want.numel(), at, got[tuple(at)].item(), want[tuple(at)].item()))
                        failed += 1
            failed += merges(name, model, place, expected)
        print("%s: %d weights in %d dtypes" % (name[5:], len(expected), len(DTYPES)))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""LoRA adapters merged into weights (convert --adapter): what comes out is bit for bit what merge_and_unload() of peft makes on
a processor, where that computes in float32, as it does of every adapter that it loads. Of DoRA the last bits may differ."""
import json
import os
import subprocess
import sys
import tempfile

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file

try:
    from peft import LoraConfig, PeftModel, get_peft_model
except ImportError:
    print("skipped: peft is missing; packaging/peers makes it")
    raise SystemExit(77) from None
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GptOssConfig,
    GptOssForCausalLM,
    Llama4ForCausalLM,
    Llama4TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

SHARDSCOPE = os.environ["SHARDSCOPE"]
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def shardscope(*words):
    done = subprocess.run([SHARDSCOPE, *words, "--json", "--progress", "none"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit("%s: %d %s%s" % (words, done.returncode, done.stdout, done.stderr))
    return json.loads(done.stdout)


def llama(dtype):
    # Not round: tails of rows, blocks that end inside of a row.
    return LlamaForCausalLM(LlamaConfig(vocab_size=515, hidden_size=144, intermediate_size=331, num_hidden_layers=2, num_attention_heads=6,
                                        num_key_value_heads=2, tie_word_embeddings=False)).to(dtype)


def gpt2(dtype):
    return GPT2LMHeadModel(GPT2Config(vocab_size=130, n_embd=48, n_layer=2, n_head=4, n_positions=32, tie_word_embeddings=False)).to(dtype)


MOE = {"vocab_size": 130, "hidden_size": 72, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 12, "num_hidden_layers": 2,
       "tie_word_embeddings": False}


def qwen3_moe(dtype):
    # Files keep each expert by itself; the model has [experts, out, in].
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(**MOE, intermediate_size=80, moe_intermediate_size=53, num_experts=5, num_experts_per_tok=2)).to(dtype)


def mixtral(dtype):
    # Other names in files than in the model. Both sides of down_proj, and one of gate_up_proj, have one size.
    return MixtralForCausalLM(MixtralConfig(**MOE, intermediate_size=72, num_local_experts=4)).to(dtype)


def gpt_oss(dtype):
    # [experts, in, out], in files as well; down_proj is square.
    return GptOssForCausalLM(GptOssConfig(**MOE, intermediate_size=72, num_local_experts=4, layer_types=["full_attention"] * 2)).to(dtype)


def llama4(dtype):
    return Llama4ForCausalLM(Llama4TextConfig(**MOE, intermediate_size=40, intermediate_size_mlp=48, num_local_experts=4)).to(dtype)


EXPERTS = {"r": 4, "lora_alpha": 6, "target_modules": ["q_proj"], "target_parameters": ["experts.gate_up_proj", "experts.down_proj"]}
CASES = {
    "linear": (llama, {"r": 8, "lora_alpha": 16, "target_modules": ALL}),
    "rslora": (llama, {"r": 6, "lora_alpha": 7, "use_rslora": True, "target_modules": ["q_proj", "down_proj"]}),
    "patterns": (llama, {"r": 8, "lora_alpha": 16, "target_modules": ALL, "rank_pattern": {"q_proj": 4, "layers.1.mlp.up_proj": 16},
                         "alpha_pattern": {"down_proj": 5, r"layers\.0\.self_attn\.[kv]_proj": 3}}),
    "embeddings": (llama, {"r": 4, "lora_alpha": 9, "target_modules": ["embed_tokens", "lm_head", "v_proj"]}),
    "to_save": (llama, {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "modules_to_save": ["lm_head", "input_layernorm"]}),
    "conv1d": (gpt2, {"r": 4, "lora_alpha": 8, "target_modules": ["c_attn", "c_proj", "c_fc"], "fan_in_fan_out": True}),
    # The norms of DoRA are sums that torch adds up in float32 in an order of its own: the last bits may differ.
    "dora": (llama, {"r": 8, "lora_alpha": 16, "target_modules": ALL, "use_dora": True}),
    "dora_conv1d": (gpt2, {"r": 4, "lora_alpha": 8, "target_modules": ["c_attn", "c_proj", "c_fc"], "fan_in_fan_out": True, "use_dora": True}),
    "experts": (qwen3_moe, {**EXPERTS, "use_rslora": True}),
    "experts_of_mixtral": (mixtral, {**EXPERTS, "rank_pattern": {r"layers\.1\.mlp\.experts\.gate_up_proj": 3}, "alpha_pattern": {"down_proj": 5}}),
    "experts_w1": (mixtral, {"r": 4, "lora_alpha": 6, "target_modules": ["v_proj", "w1", "w2", "w3", "gate"]}),
    "experts_down": (qwen3_moe, {**EXPERTS, "target_parameters": ["mlp.experts.down_proj"]}),
    "experts_in_out": (gpt_oss, {**EXPERTS, "target_parameters": ["experts.gate_up_proj", "experts.down_proj", "gate_up_proj_bias", "router.weight"]}),
    "experts_of_llama4": (llama4, EXPERTS),
    "bias": (gpt2, {"r": 4, "lora_alpha": 8, "target_modules": ["c_attn"], "fan_in_fan_out": True, "bias": "lora_only"}),
    # Several of these together.
    "layers": (llama, {"r": 4, "lora_alpha": 6, "target_modules": ["q_proj", "up_proj"], "layers_to_transform": [1], "layers_pattern": "layers", "use_rslora": True,
                       "rank_pattern": {"up_proj": 7}, "modules_to_save": ["embed_tokens"]}),
    "dora_patterns": (llama, {"r": 8, "lora_alpha": 16, "target_modules": ALL, "use_dora": True, "use_rslora": True, "rank_pattern": {"q_proj": 4, "layers.1.mlp.up_proj": 3},
                              "alpha_pattern": {"down_proj": 5}, "modules_to_save": ["lm_head"]}),
    "conv1d_patterns": (gpt2, {"r": 4, "lora_alpha": 8, "target_modules": ["c_attn", "c_proj", "wte"], "fan_in_fan_out": True, "use_rslora": True,
                               "rank_pattern": {r"h\.0\.attn\.c_proj": 2}, "modules_to_save": ["ln_f"]}),
}


def bits(tensor):
    return tensor.contiguous().view(torch.int32 if tensor.element_size() == 4 else torch.int16)


def trained(model):
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if "lora_" in name or "modules_to_save" in name or (tensor.requires_grad and name.endswith("bias")):
                tensor.copy_(torch.randn_like(tensor) * 0.3)
    return model


def merged(made, base, adapter, dtype, experts=False):
    if experts:
        # peft rounds what it adds to a parameter to the dtype of that, before the sum: here the sum alone is rounded.
        return PeftModel.from_pretrained(type(made(dtype)).from_pretrained(base, dtype=torch.float32), adapter).merge_and_unload().state_dict()
    model = made(dtype)
    model.load_state_dict(load_file(os.path.join(base, "model.safetensors")), strict=False)
    tuned = PeftModel.from_pretrained(model, adapter)
    stored, embeddings = load_file(os.path.join(adapter, "adapter_model.safetensors")), {}
    for name, module in tuned.named_modules():
        # peft takes the matrices of an embedding in the dtype of the weight and rounds their product to it, before the sum. Here they
        # are as they are stored, and the sum alone is rounded.
        if hasattr(module, "lora_embedding_A") and "default" in module.lora_embedding_A:
            for which in "AB":
                getattr(module, "lora_embedding_" + which)["default"].data = stored["%s.lora_embedding_%s" % (name, which)].float()
            weight = module.get_base_layer().weight
            embeddings[name.removeprefix("base_model.model.") + ".weight"] = (weight.data.float() + module.get_delta_weight("default")).to(weight.dtype)
    return {**tuned.merge_and_unload().state_dict(), **embeddings}


def last_bits(dtype):
    return {torch.float32: 2.0**-21, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}[dtype]


def compare(name, got, want):
    failed = 0
    for key, tensor in got.items():
        answer = want[key].to(tensor.dtype)  # peft keeps modules_to_save as float32
        differs = bits(tensor) != bits(answer)
        if name.startswith("dora"):
            differs = (tensor.double() - answer.double()).abs() > last_bits(tensor.dtype) * answer.double().abs()
        if tensor.shape != answer.shape or differs.any():
            print("%s: %s: %d of %d differ" % (name, key, differs.sum(), differs.numel()))
            failed += 1
    return failed


HEADS, GROUPS = 6, 2
NUMBERS = ["--set", "heads=%d" % HEADS]


class Megatron:
    """Llama, its checkpoint of Megatron, and the layers that Megatron-Bridge has adapters for."""

    def __init__(self, place, dtype):
        self.place = place
        made = llama(dtype)
        made.save_pretrained(self.at("base"))
        shardscope("convert", self.at("base"), self.at("there"), "--to", "dcp", "--map", "llama-megatron-from-hf")
        config = made.config
        width, self.inner, size = config.hidden_size, config.intermediate_size, config.hidden_size // HEADS
        self.layers = range(config.num_hidden_layers)
        # columns, rows
        self.shapes = {"self_attention.linear_qkv": (width, (HEADS + 2 * GROUPS) * size), "self_attention.linear_proj": (HEADS * size, width),
                       "mlp.linear_fc1": (width, 2 * self.inner), "mlp.linear_fc2": (self.inner, width)}

    def at(self, name):
        return os.path.join(self.place, name)

    def save(self, name, ranks, file, text, swift=False, magnitudes=False):
        tensors = {}
        for layer in self.layers:
            for module, (columns, rows) in self.shapes.items():
                stem = "decoder.layers.%d.%s." % (layer, module)
                names = ("lora_A.default", "lora_B.default") if swift else ("adapter.linear_in", "adapter.linear_out")
                rank = ranks[module.split("_")[-1]]
                tensors[stem + names[0] + ".weight"], tensors[stem + names[1] + ".weight"] = torch.randn(rank, columns), torch.randn(rows, rank)
                if magnitudes:
                    tensors[stem + "adapter.weight_magnitude"] = torch.rand(rows) + 0.5
        keep(self.at(name), tensors, file, text)
        return tensors


def keep(path, tensors, file, text):
    dcp.save(tensors, checkpoint_id=path, no_dist=True)
    with open(os.path.join(path, file), "w", encoding="utf-8") as out:
        out.write(text)


def run_config(alpha, rank, more="", model=""):
    return "model:\n  num_attention_heads: %d\n  num_query_groups: %d\n%speft:\n  alpha: %d\n  dim: %d\n%s" % (HEADS, GROUPS, model, alpha, rank, more)


def adapter_of(path):
    return load_file(os.path.join(path, "adapter_model.safetensors"))


def megatron():
    """An adapter under the names of Megatron-Bridge: merged there, or made one of PEFT and merged by that, gives the same bits."""
    failed, rank, alpha = 0, 8, 20
    with tempfile.TemporaryDirectory() as place:
        of = Megatron(place, torch.bfloat16)
        at = of.at
        of.save("bridge", dict.fromkeys(("qkv", "proj", "fc1", "fc2"), rank), "run_config.yaml", run_config(alpha, rank))
        shardscope("convert", at("there"), at("merged"), "--adapter", at("bridge"))
        shardscope("convert", at("merged"), at("back"), "--to", "safetensors", "--map", "llama-hf-from-megatron", *NUMBERS)
        shardscope("convert", at("bridge"), at("peft"), "--to", "safetensors", "--weights-only", "--map", "llama-peft-from-megatron")
        shardscope("convert", at("base"), at("here"), "--to", "hf", "--adapter", at("peft"))
        want = merged(llama, at("base"), at("peft"), torch.bfloat16)
        for name in ("back", "here"):
            got = load_file(os.path.join(at(name), "model.safetensors"))
            assert set(got) == set(load_file(os.path.join(at("base"), "model.safetensors"))), set(got)
            failed += compare("Megatron, " + name, got, want)
        # There and back: q, k and v by themselves, and as one where their A is the same.
        before = adapter_of(at("peft"))
        for way, words in (("canonical", []), ("fused", ["--set", "fused=1"]), ("swift", ["--set", "swift=1"])):
            shardscope("convert", at("peft"), at(way), "--to", "dcp", "--map", "llama-megatron-from-peft", *words, *NUMBERS, "--set", "kv_heads=%d" % GROUPS)
            shardscope("convert", at(way), at(way + "-back"), "--to", "safetensors", "--map", "llama-peft-from-megatron", *NUMBERS, "--set", "alpha=%d" % alpha)
            after = adapter_of(at(way + "-back"))
            assert set(after) == set(before), way
            failed += compare(way, after, before)
            again = merged(llama, at("base"), at(way + "-back"), torch.bfloat16)
            failed += compare(way + ", merged", {key: again[key] for key in want}, want)
    print("Megatron: %s" % ("differs" if failed else "the bits of peft"))
    return failed


def megatron_by_module():
    """Ranks and scalings that differ by module, the root of the rank, DoRA: from Megatron to PEFT, and from PEFT to Megatron and back."""
    failed = 0
    with tempfile.TemporaryDirectory() as place:
        of = Megatron(place, torch.float32)
        at = of.at
        section = run_config(20, 8, "  normalize_moe_lora: true\n")
        arguments = json.dumps({"num_attention_heads": HEADS, "num_query_groups": GROUPS, "lora_alpha": 5, "use_rslora": True})
        for way, file, text in (("ranks", "run_config.yaml", section), ("dora", "run_config.yaml", section), ("swift", "args.json", arguments)):
            of.save(way, {"qkv": 8, "proj": 4, "fc1": 8, "fc2": 2 if way == "dora" else 3}, file, text, swift=way == "swift", magnitudes=way == "dora")
            shardscope("convert", at(way), at(way + "-peft"), "--to", "safetensors", "--weights-only", "--strict", "--map", "llama-peft-from-megatron")
            shardscope("convert", at("there"), at(way + "-merged"), "--adapter", at(way))
            shardscope("convert", at(way + "-merged"), at(way + "-back"), "--to", "safetensors", "--map", "llama-hf-from-megatron", *NUMBERS)
            want = merged(llama, at("base"), at(way + "-peft"), torch.float32)
            got = load_file(os.path.join(at(way + "-back"), "model.safetensors"))
            failed += compare(way, got, {key: want[key] for key in got})
        # DoRA there and back; magnitudes of gate and up lie in the order of the ranks that load them.
        want = merged(llama, at("base"), at("dora-peft"), torch.float32)
        for ranks in (1, of.inner):
            there, again = at("dora-there%d" % ranks), at("dora-again%d" % ranks)
            shardscope("convert", at("dora-peft"), there, "--to", "dcp", "--strict", "--map", "llama-megatron-from-peft", *NUMBERS, "--set", "fused=1", "--set",
                       "kv_heads=%d" % GROUPS, "--set", "ranks=%d" % ranks)
            # The largest scaling is that of rank 2, and the largest rank is 8.
            shardscope("convert", there, again, "--to", "safetensors", "--map", "llama-peft-from-megatron", *NUMBERS, "--set", "alpha=80", "--set", "ranks=%d" % ranks)
            failed += compare("dora, %d ranks" % ranks, merged(llama, at("base"), again, torch.float32), want)
        for way, how in {"patterns": {"r": 8, "lora_alpha": 16, "rank_pattern": {"q_proj": 4, "layers.1.mlp.up_proj": 2}, "alpha_pattern": {"down_proj": 2}},
                         "root": {"r": 4, "lora_alpha": 3, "use_rslora": True}}.items():
            model = LlamaForCausalLM.from_pretrained(at("base"), dtype=torch.float32)
            trained(get_peft_model(model, LoraConfig(target_modules=ALL, **how))).save_pretrained(at(way))
            want = merged(llama, at("base"), at(way), torch.float32)
            plan = shardscope("plan", at(way), at(way + "-there"), "--to", "dcp", "--map", "llama-megatron-from-peft")
            alpha = {"patterns": 64, "root": 6}[way]  # up_proj of layer 1 is scaled most, by 8, and the largest rank is 8
            assert "%d for rank %d" % (alpha, how["r"]) in json.dumps(plan["notes"]), plan["notes"]
            shardscope("convert", at(way), at(way + "-there"), "--to", "dcp", "--map", "llama-megatron-from-peft")
            shardscope("convert", at(way + "-there"), at(way + "-back"), "--to", "safetensors", "--map", "llama-peft-from-megatron", *NUMBERS, "--set",
                       "alpha=%d" % alpha)
            again = merged(llama, at("base"), at(way + "-back"), torch.float32)
            failed += compare(way, again, want)
    print("Megatron, by module: %s" % ("differs" if failed else "the bits of peft"))
    return failed


def megatron_experts():
    """Experts with an adapter each, with one for all, with one of both matrices for all: what becomes of them is merged by PEFT, and comes back."""
    failed, rank, alpha = 0, 3, 9
    for kind, made in (("qwen3", qwen3_moe), ("mixtral", mixtral)):
        with tempfile.TemporaryDirectory() as place:
            def at(name):
                return os.path.join(place, name)
            made(torch.float32).save_pretrained(at("base"))
            base = type(made(torch.float32)).from_pretrained(at("base"), dtype=torch.float32).state_dict()
            stem = "decoder.layers.%d.mlp.experts.experts.linear_fc%d.adapter.linear_%s.weight"
            experts, rows, columns = base["model.layers.0.mlp.experts.gate_up_proj"].shape
            shapes = {1: (columns, rows), 2: (rows // 2, columns)}
            names = ["--set", "mixtral=%d" % (kind == "mixtral")]
            for layout in ("each", "one", "outer", "sequential", "swift", "stacked"):
                tensors, want = {}, dict(base)
                for layer in range(2):
                    for fc, (ins, outs) in shapes.items():
                        shared_in, shared_out = layout == "one" or (layout == "outer" and fc == 1), layout == "one" or (layout == "outer" and fc == 2)
                        down, up = torch.randn(*([] if shared_in else [experts]), rank, ins), torch.randn(*([] if shared_out else [experts]), outs, rank)
                        parameter = "model.layers.%d.mlp.experts.%s" % (layer, "gate_up_proj" if fc == 1 else "down_proj")
                        want[parameter] = base[parameter] + alpha / rank * (up.double() @ down.double()).float()
                        for end, matrix in (("in", down), ("out", up)):
                            name = stem % (layer, fc, end)
                            if layout == "swift":
                                name = name.replace("adapter.linear_in", "lora_A.default").replace("adapter.linear_out", "lora_B.default")
                            if layout == "sequential":
                                tensors.update({name.replace("experts.experts", "experts.local_experts.%d" % e): matrix[e].clone() for e in range(experts)})
                            elif layout == "stacked":
                                name = name.replace("layers.%d" % layer, "layers")
                                tensors[name] = torch.stack([tensors[name], matrix]) if layer else matrix
                            else:
                                tensors[name] = matrix
                keep(at(layout), tensors, "run_config.yaml", run_config(alpha, rank, model="  num_moe_experts: %d\n" % experts))
                shardscope("convert", at(layout), at(layout + "-peft"), "--to", "safetensors", "--strict", "--map", "llama-peft-from-megatron", *names)
                shardscope("convert", at("base"), at(layout + "-merged"), "--to", "hf", "--adapter", at(layout + "-peft"))
                ours = type(made(torch.float32)).from_pretrained(at(layout + "-merged"), dtype=torch.float32).state_dict()
                model = type(made(torch.float32)).from_pretrained(at("base"), dtype=torch.float32)
                theirs = PeftModel.from_pretrained(model, at(layout + "-peft")).merge_and_unload().state_dict()
                for name, tensor in want.items():
                    for who, got in (("ours", ours), ("peft's", theirs)):
                        if not torch.allclose(got[name], tensor, rtol=1e-5, atol=1e-5):
                            print("experts of %s, %s: %s %s differs by %g" % (kind, layout, who, name, (got[name] - tensor).abs().max()))
                            failed += 1
                before = adapter_of(at(layout + "-peft"))
                for way in ([], ["--set", "sequential_experts=1"], ["--set", "swift=1", "--set", "heads=6"]):
                    there, again = (at("%s-%s%d" % (layout, end, len(way))) for end in ("there", "again"))
                    shardscope("convert", at(layout + "-peft"), there, "--to", "dcp", "--strict", "--map", "llama-megatron-from-peft", *way)
                    shardscope("convert", there, again, "--to", "safetensors", "--strict", "--map", "llama-peft-from-megatron", "--set", "alpha=%d" % alpha, *names)
                    assert set(adapter_of(again)) == set(before), way
                    failed += compare("%s, there and back" % layout, adapter_of(again), before)
    print("Megatron, experts: %s" % ("differs" if failed else "the values of peft"))
    return failed


def main():
    torch.manual_seed(7)
    failed = 0
    for case, (made, how) in CASES.items():
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for adapter_dtype in {torch.float32} if "use_dora" in how else {torch.float32, dtype}:
                with tempfile.TemporaryDirectory() as place:
                    base, adapter, out = (os.path.join(place, n) for n in ("base", "adapter", "out"))
                    made(dtype).save_pretrained(base)
                    model = type(made(dtype)).from_pretrained(base, dtype=dtype)
                    tuned = trained(get_peft_model(model, LoraConfig(**how), autocast_adapter_dtype=adapter_dtype == torch.float32))
                    tuned.save_pretrained(adapter)
                    experts = case.startswith("experts")
                    want = merged(made, base, adapter, dtype, experts)
                    name = "%s %s, adapter %s" % (case, dtype, adapter_dtype)
                    shardscope("convert", base, out, "--to", "hf", "--adapter", adapter, "--memory", "128MiB")
                    got = load_file(os.path.join(out, "model.safetensors"))
                    assert set(got) == set(load_file(os.path.join(base, "model.safetensors"))), name
                    loaded, problems = type(model).from_pretrained(out, dtype=dtype, output_loading_info=True)
                    assert not any(problems.values()), problems
                    # Files name experts in another way than the model.
                    failed += compare(name, loaded.state_dict() if experts else got, want)
                    if experts:
                        continue
                    # As a trainer's state dict has it, in another format.
                    dcp.save({"model": {k: v for k, v in tuned.state_dict().items() if "lora_" in k or "modules_to_save" in k or k.endswith("bias")}},
                             checkpoint_id=os.path.join(place, "dcp"), no_dist=True)
                    os.replace(os.path.join(adapter, "adapter_config.json"), os.path.join(place, "dcp", "adapter_config.json"))
                    if case != "bias":  # there all biases are in it, the base's own, too
                        shardscope("convert", base, out + "2", "--to", "safetensors", "--adapter", os.path.join(place, "dcp"))
                        failed += compare(name + ", DCP", load_file(os.path.join(out + "2", "model.safetensors")), want)
                    # Rounded once: the sum of a 16-bit weight, as float32.
                    if case == "linear":
                        shardscope("convert", base, out + "3", "--to", "safetensors", "--adapter", os.path.join(place, "dcp"), "--dtype", "*=fp32")
                        wide = load_file(os.path.join(out + "3", "model.safetensors"))
                        scaling = how["lora_alpha"] / how["r"]
                        lora = tuned.state_dict()
                        before = load_file(os.path.join(base, "model.safetensors"))
                        for key, tensor in before.items():
                            stem = "base_model.model." + key.removesuffix(".weight")
                            answer = tensor.float()
                            if stem + ".lora_A.default.weight" in lora:
                                up, down = (lora["%s.lora_%s.default.weight" % (stem, m)].float() for m in "BA")
                                answer += up @ down * scaling
                            failed += compare(name + ", fp32", {key: wide[key]}, {key: answer})
        print("%s: %s" % (case, "differs" if failed else "the bits of peft, but for the last ones" if "dora" in case else "the bits of peft"))
    failed += megatron()
    failed += megatron_by_module()
    failed += megatron_experts()
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Recipes between Hugging Face and torchtitan, proved by torchtitan's own models and adapters: a small model of each family is built, its
state saved with DCP. What the recipe makes of it for Hugging Face is what the adapter's to_hf makes, bit for bit; what the other recipe makes
of that is what the model loads with dcp.load, strict, and equal to what was saved. Then the same under the names of torchtitan 0.2."""
import importlib
import inspect
import logging
import os
import re
import sys
import tempfile
import traceback
import warnings

from peercommon import mapped

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
# family: module, its configurations, the smallest of them, adapter, recipe, layers to keep
FAMILIES = {
    "llama": ("llama3", "llama3_configs", "debugmodel", "Llama3StateDictAdapter", "llama", 2),
    "qwen3": ("qwen3", "qwen3_configs", "debugmodel", "Qwen3StateDictAdapter", "qwen3", 2),
    "qwen3-moe": ("qwen3", "qwen3_configs", "debugmodel_moe", "Qwen3StateDictAdapter", "qwen3", 1),
    "deepseek-v3": ("deepseek_v3", "deepseekv3_configs", "debugmodel", "DeepSeekV3StateDictAdapter", "deepseek-v3", 2),
    "gpt-oss": ("gpt_oss", "gptoss_configs", "debugmodel", "GptOssStateDictAdapter", "gpt-oss", 1),
}


def built(module, configs, flavor, layers):
    make = getattr(module, configs)[flavor]
    needed = [p.name for p in inspect.signature(make).parameters.values() if p.default is inspect.Parameter.empty]
    config = make(**{name: "flex" if name == "attn_backend" else "standard" for name in needed})
    config.layers = config.layers[:layers]
    return config, config.build().to(torch.bfloat16)


def saved(state, path):
    dcp.save(state, checkpoint_id=path, no_dist=True)
    return path


def numbers(config):
    """What a config.json would say: our recipes take it from there."""
    attention = config.layers[0].attention
    heads = attention.n_heads
    return {"num_attention_heads": heads, "num_key_value_heads": getattr(attention, "n_kv_heads", None) or heads}


def older(name):
    """The name in torchtitan 0.2 (its state_dict_adapter.py of each model)."""
    for new, old in ((".qkv_linear.", "."), ("lm_head.", "output."), (".routed_experts.inner_experts.", ".experts."), ("_EFD", ""), ("_EDF", ""),
                     ("_EGD", ""), ("_EG", ""), ("_ED", ""), (".expert_bias_E", ".expert_bias")):
        name = name.replace(new, old)
    return name


def compare(what, got, wanted):
    if set(got) != set(wanted):
        raise AssertionError(f"{what}: only here {sorted(set(got) - set(wanted))[:5]}, only there {sorted(set(wanted) - set(got))[:5]}")
    for name, tensor in wanted.items():
        if got[name].dtype != tensor.dtype or not torch.equal(got[name], tensor):
            raise AssertionError(f"{what}: {name} differs")


def hugging_face(path, numbers, source, recipe):
    mapped(source, path, "--to", "safetensors", "--map", f"{recipe}-hf-from-torchtitan", *numbers)
    tensors = {}
    for name in os.listdir(path):
        if name.endswith(".safetensors"):
            tensors.update(load_file(os.path.join(path, name)))
    return tensors


def check(family, work):
    module_name, configs, flavor, adapter_name, recipe, layers = FAMILIES[family]
    module = importlib.import_module(f"torchtitan.models.{module_name}")
    adapters = importlib.import_module(f"torchtitan.models.{module_name}.state_dict_adapter")
    torch.manual_seed(7)
    config, model = built(module, configs, flavor, layers)
    state = {name: torch.randn(value.shape, dtype=torch.float32).to(value.dtype) for name, value in model.state_dict().items()}
    if config.enable_weight_tying:
        state["lm_head.weight"] = state["tok_embeddings.weight"]
    adapter = getattr(adapters, adapter_name)(config, None)
    said = numbers(config)
    sets = [word for key, value in (("heads", said["num_attention_heads"]), ("kv_heads", said["num_key_value_heads"])) for word in ("--set", f"{key}={value}")]
    sets = sets if recipe == "llama" else []
    source = saved(state, os.path.join(work, "titan"))
    hf = hugging_face(os.path.join(work, "hf"), sets, source, recipe)
    wanted = {name: value.contiguous() for name, value in adapter.to_hf(dict(state)).items()}
    if "lm_head.weight" not in wanted:  # the model's embedding; a file may have it, too
        wanted["lm_head.weight"] = state["tok_embeddings.weight"]
    for name, value in state.items():  # the adapter of 0.3.0 does not know the suffixes of these names, which its model gives them
        found = re.fullmatch(r"(layers\.\d+)\.moe\.routed_experts\.inner_experts\.mlp([12])_(weight|bias)_E[A-Z]+", name)
        if found:
            part = "gate_up_proj" if found[2] == "1" else "down_proj"
            of = value.transpose(1, 2).contiguous() if found[3] == "weight" else value
            wanted[f"model.{found[1]}.mlp.experts.{part}{'_bias' if found[3] == 'bias' else ''}"] = of
    compare("to Hugging Face", hf, wanted)

    back = os.path.join(work, "back")
    mapped(os.path.join(work, "hf"), back, "--to", "dcp", "--map", f"{recipe}-torchtitan-from-hf", *sets)
    # What balances the router is not in a Hugging Face model without such a bias.
    extra = {name for name in state if name.endswith("expert_bias_E") and recipe != "deepseek-v3"}
    loaded = {name: torch.zeros_like(value) for name, value in state.items() if name not in extra}
    dcp.load(loaded, checkpoint_id=back, no_dist=True)
    compare("to torchtitan", loaded, {name: state[name] for name in loaded})
    missing, unknown = model.load_state_dict(loaded, strict=False)
    if set(missing) - extra or unknown:
        raise AssertionError(f"the model lacks {missing} and does not know {unknown}")

    old = saved({older(name): value for name, value in state.items()}, os.path.join(work, "titan-0.2"))
    compare("names of 0.2", hugging_face(os.path.join(work, "hf-0.2"), sets, old, recipe), wanted)
    mapped(os.path.join(work, "hf"), os.path.join(work, "back-0.2"), "--to", "dcp", "--map", f"{recipe}-torchtitan-from-hf", "--set",
               "names_of_0_2=1", *sets)
    loaded = {older(name): torch.zeros_like(value) for name, value in loaded.items()}
    dcp.load(loaded, checkpoint_id=os.path.join(work, "back-0.2"), no_dist=True)
    compare("to names of 0.2", loaded, {older(name): state[name] for name in state if older(name) in loaded})
    return len(wanted), sorted(extra)


def main():
    failed = 0
    for family in sys.argv[1:] or FAMILIES:
        with tempfile.TemporaryDirectory() as work:
            try:
                tensors, extra = check(family, work)
                print(f"ok   {family}: {tensors} tensors" + (f", without {', '.join(extra)}" if extra else ""), flush=True)
            except Exception:
                failed += 1
                print(f"FAIL {family}\n{traceback.format_exc()}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

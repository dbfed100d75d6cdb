"""What `--to hf` writes is loaded by transformers' from_pretrained, whatever format and names it came from: no key is missing, none is
unexpected, no shape differs, every weight has the same bits, and the logits are those of the model that was saved. All families of the recipes, by `--to hf --assets` alone."""
import copy
import json
import os
import sys
import tempfile
import traceback

from megatron_recipes_peer import COMMON, TITAN, add_prediction, families, make_hf
from peercommon import shardscope

import torch
import transformers

MAXTEXT = {"llama", "qwen3", "qwen3-moe", "gemma2", "gemma3", "deepseek-v3"}
# Under the names of Hugging Face: what trainers of a transformers model save.
PLAIN = {
    "DCP": ["--to", "dcp"],
    "DCP of a trainer": ["--to", "dcp", "--mesh", "fsdp=2", "--shard", "*:fsdp=0", "--rename", "^=model."],
    "torch.save": ["--to", "torch", "--rename", "^=module."],
    "files of ranks": ["--to", "torch-ranks", "--mesh", "fsdp=2"],
    "DeepSpeed": ["--to", "deepspeed"],
    "PaddlePaddle": ["--to", "paddle", "--mesh", "dp=2", "--shard", "*weight:dp=0"],
    "ColossalAI": ["--to", "colossalai"],
    "torch_checkpointing": ["--to", "torch-checkpointing", "--mesh", "fsdp=2", "--shard", "*weight:fsdp=0"],
    "safetensors of ranks": ["--to", "safetensors", "--mesh", "fsdp=2", "--shard", "*weight:fsdp=0"],
    "safetensors": ["--to", "safetensors", "--rename", "^=model."],
}


def models():
    """name, class, configuration, the layer that predicts further tokens, whether it has recipes for Megatron"""
    for name, kind, config, changes, more in families():
        # Without kernels of a GPU NemotronH is not even built; megatron_recipes_peer compares its tensors.
        # Of MiMo transformers has no class. Models with the recipe of another one add nothing here.
        if changes is not None and name != "mimo" and ("recipe" not in more or "model_type" in more):
            yield name, kind, config, more, True
    t = transformers
    # Alternating updates, LAuReL and embeddings of each layer; the last layers take keys and values from those before.
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    yield "gemma3n", t.Gemma3nForCausalLM, t.Gemma3nTextConfig(**dict(
        COMMON, num_hidden_layers=5, layer_types=kinds + kinds[:2], num_kv_shared_layers=2, laurel_rank=8, altup_num_inputs=4, sliding_window=16,
        hidden_size_per_layer_input=16, vocab_size_per_layer_input=COMMON["vocab_size"], activation_sparsity_pattern=[0.0] * 5, tie_word_embeddings=True)), {}, False
    yield "olmo2", t.Olmo2ForCausalLM, t.Olmo2Config(**COMMON), {}, False
    yield "phi3", t.Phi3ForCausalLM, t.Phi3Config(**COMMON), {}, False
    yield "granite", t.GraniteForCausalLM, t.GraniteConfig(**dict(COMMON, tie_word_embeddings=True)), {}, False


def sources(name, more, with_megatron):
    """What is saved, and how the program makes it from the model of Hugging Face."""
    yield from PLAIN.items()
    yield "a trainer's state dict", None
    if with_megatron:
        yield "Megatron", ["--to", "megatron", "--map", more.get("recipe", name) + "-megatron-from-hf"]
    # Neither has layers that predict further tokens.
    ahead = more["mtp"].get("beside", more["mtp"]["layer"]) if "mtp" in more else "none"
    if name in TITAN:
        yield "torchtitan", ["--to", "dcp", "--map", TITAN[name] + "-torchtitan-from-hf", "--exclude", ahead + "*"]
    if name in MAXTEXT:
        yield "MaxText", ["--to", "dcp", "--map", name + "-maxtext-from-hf", "--exclude", ahead + "*"]


def restate(path, model_type):
    """The name by which a model is known whose code is that of another one."""
    file = os.path.join(path, "config.json")
    with open(file, encoding="utf-8") as stated:
        config = json.load(stated)
    with open(file, "w", encoding="utf-8") as stated:
        json.dump(dict(config, model_type=model_type), stated)


def load(kind, path):
    model, report = kind.from_pretrained(path, output_loading_info=True, dtype="auto")
    return model.eval(), {k: sorted(map(str, v)) for k, v in report.items() if k in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")}


def differing(model, wanted, close):
    """Weights that differ. MaxText keeps some of them multiplied: those are close."""
    state, other = model.state_dict(), wanted.state_dict()
    same = (lambda a, b: torch.allclose(a, b, atol=1e-6)) if close else torch.equal
    return sorted(name for name in state.keys() | other.keys() if name not in state or name not in other or not same(state[name], other[name]))


def logits(kind, config, loaded):
    """Of its weights, in float32, where the order of sums over experts does not show. The megatron environment's from_pretrained leaves
    buffers that are not saved (rotary frequencies) unset, so a model that is built anew takes the weights."""
    model = kind(copy.deepcopy(config)).eval()
    model.load_state_dict(loaded.state_dict())
    with torch.no_grad():
        return model.float()(torch.arange(1, 13)[None]).logits


def prove(name, kind, config, more, with_megatron, place):
    hf = os.path.join(place, "hf")
    make_hf(kind, config).save_pretrained(hf)
    if "mtp" in more:
        add_prediction(hf, kind, config, more["mtp"])
    model, itself = load(kind, hf)
    wanted = logits(kind, config, model)
    assert wanted.isfinite().all() and wanted.std() > 0
    failures = 0
    for number, (what, words) in enumerate(sources(name, more, with_megatron)):
        there, again = (os.path.join(place, "%s%d" % (end, number)) for end in ("there", "again"))
        try:
            if "model_type" in more:
                restate(hf, more["model_type"])
            if words is None:
                # Experts are in one tensor there, each by itself in files.
                torch.save({"model": {"module." + k: v for k, v in model.state_dict().items()}, "epoch": 3}, there)
            else:
                shardscope("convert", hf, there, *words)
            report = shardscope("convert", there, again, "--to", "hf", "--assets", hf)
            said = report["plan"]["transformers"]
            assert said and said["loads"], "the plan says that it does not load: %s" % said
            assert not report["unknown"], "unknown: %s" % report["unknown"][:5]
            if "model_type" in more:
                restate(again, config.model_type)
            loaded, found = load(kind, again)
            more_found = {k: sorted(set(v) - set(itself[k])) for k, v in found.items()}
            assert not any(more_found.values()), "from_pretrained finds %s" % more_found
            wrong = differing(loaded, model, close=what == "MaxText")
            assert not wrong, "%d weights differ, such as %s" % (len(wrong), wrong[:3])
            found = logits(kind, config, loaded)
            assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-4), "the logits differ by %g" % (found - wanted).abs().max()
        except Exception as error:  # one way that fails must not hide the others
            failures += 1
            print("FAIL %s, %s: %s" % (name, what, error))
            if not isinstance(error, AssertionError):
                traceback.print_exc(limit=-6)
    return number + 1, failures


def main():
    only, done, failed = sys.argv[1:], 0, 0
    for name, kind, config, more, with_megatron in models():
        if only and name not in only:
            continue
        with tempfile.TemporaryDirectory() as place:
            ways, failures = prove(name, kind, config, more, with_megatron, place)
        print("%s: %d ways, %d failures" % (name, ways, failures), flush=True)
        done, failed = done + ways, failed + failures
    print("%d ways, %d failures" % (done, failed))
    sys.stdout.flush()
    os._exit(1 if failed or not done else 0)


if __name__ == "__main__":
    main()

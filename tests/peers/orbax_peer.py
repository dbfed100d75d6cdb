"""Orbax, proved by Orbax itself, and the recipes for MaxText, proved by MaxText's own tables.

Orbax writes small trees on a mesh of eight simulated devices in all of its layouts; every tensor comes back bit for bit, and what is damaged is
found. A tiny model of each family that transformers builds becomes MaxText's tree through MaxText's mappings, hooks and stacking (its files
alone: no model of MaxText is run), and Orbax saves it, with scanned layers and without. What our recipe makes of that is, bit for bit, what
MaxText's hooks make of it, and transformers loads it; the recipe back gives MaxText's tree again."""
import hashlib
import importlib.util
import json
import os
import re
import shutil
import sys
import tempfile
import traceback
import types
import warnings

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
from peercommon import mapped, shardscope

import jax
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import torch
import transformers
from flax import serialization
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

warnings.filterwarnings("ignore")
transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(1)
BF16 = ml_dtypes.bfloat16
DTYPES = {"BF16": BF16, "F32": np.float32}
HIDDEN, HEADS, GROUPS, HEAD_DIM, FFN, VOCAB, EXPERTS = 32, 4, 2, 8, 40, 61, 4


def maxtext(module):
    """One file of MaxText: the package needs far more than these do."""
    place = os.path.join(os.path.dirname(os.path.dirname(ocp.__file__)), "..", "maxtext", "checkpoint_conversion", "utils", module + ".py")
    spec = importlib.util.spec_from_file_location("maxtext_" + module, os.path.abspath(place))
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def flat(tree):
    """{name as Shardscope shows it: array}"""
    return {".".join(str(getattr(k, "key", getattr(k, "idx", getattr(k, "name", k)))) for k in path): np.asarray(leaf)
            for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}


def compare(what, got, wanted):
    if set(got) != set(wanted):
        raise AssertionError(f"{what}: only here {sorted(set(got) - set(wanted))[:5]}, only there {sorted(set(wanted) - set(got))[:5]}")
    for name, value in wanted.items():
        if got[name].dtype != value.dtype or got[name].shape != value.shape or got[name].tobytes() != np.ascontiguousarray(value).tobytes():
            raise AssertionError(f"{what}: {name} differs: {got[name].dtype}{got[name].shape}, wanted {value.dtype}{value.shape}")


def read_file(path):
    """safetensors.numpy knows no bfloat16."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    header.pop("__metadata__", None)
    return {name: np.frombuffer(data[slice(*t["data_offsets"])], DTYPES[t["dtype"]]).reshape(t["shape"]) for name, t in header.items()}


def read(path):
    tensors = {}
    for name in os.listdir(path):
        if name.endswith(".safetensors"):
            tensors.update(read_file(os.path.join(path, name)))
    return tensors


# ------------------------------------------------------------------ Orbax

def tree():
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("fsdp", "tp"))
    random = np.random.default_rng(5)

    def array(shape, dtype, *spec):
        return jax.device_put(random.standard_normal(shape).astype(dtype), NamedSharding(mesh, P(*spec)))
    return {"params": {"cut": array((64, 32), BF16, "fsdp", "tp"), "both": array((64, 24), np.float32, ("fsdp", "tp")), "replicated": array((32,), np.float32),
                       "columns": array((8, 64), np.float16, None, "fsdp"), "float8": array((16, 16), ml_dtypes.float8_e4m3fn, "tp"),
                       "list": [array((8, 8), np.int32, "tp"), array((8,), bool)]},
            "on_host": random.standard_normal((5, 3)), "step": 17}


def store(path, value, ocdbt=True, zarr3=False):
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt, use_zarr3=zarr3)) as checkpointer:
        checkpointer.save(path, args=ocp.args.PyTreeSave(value))
    return path


def digests(path):
    return shardscope("digest", path, "--algorithm", "sha256")["tensors"]


def hashes(wanted):
    return {name: hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest() for name, value in wanted.items()}


def layouts(work):
    value = tree()
    wanted = hashes(flat(value))
    for ocdbt in (True, False):
        for zarr3 in (False, True):
            # float8 is no dtype of zarr 3 as tensorstore writes it.
            mine = value if not zarr3 else dict(value, params={k: v for k, v in value["params"].items() if k != "float8"})
            path = store(os.path.join(work, f"{ocdbt}-{zarr3}"), mine, ocdbt, zarr3)
            got = digests(path)
            if got != {k: v for k, v in wanted.items() if k in got} or len(got) != len(flat(mine)):
                raise AssertionError(f"ocdbt {ocdbt}, zarr3 {zarr3}: {[k for k in wanted if got.get(k) != wanted[k]]}")
            if shardscope("validate", path, "--level", "values")["verdict"] != "safe":
                raise AssertionError("what Orbax wrote is not whole")
            axes = {a["name"]: a["size"] for a in shardscope("info", path)["mesh"]["axes"]}
            if axes != {"fsdp": 4, "tp": 2}:
                raise AssertionError(f"the mesh is {axes}")


def items(work):
    value = tree()
    path = os.path.join(work, "run")
    with ocp.CheckpointManager(path, options=ocp.CheckpointManagerOptions(enable_async_checkpointing=False)) as manager:
        for step in (3, 12):
            manager.save(step, args=ocp.args.Composite(params=ocp.args.StandardSave(value["params"]), moments=ocp.args.StandardSave({"mu": value["params"]["cut"]}),
                                                       notes=ocp.args.JsonSave({"step": step})))
    wanted = {"params." + k: v for k, v in flat(value["params"]).items()} | {"moments.mu": np.asarray(value["params"]["cut"])}
    got = digests(os.path.join(path, "12"))
    if got != hashes(wanted):
        raise AssertionError(f"{sorted(got)}, wanted {sorted(wanted)}")


def chunked(work):
    """A file of Flax with arrays that are cut, as those of a gigabyte are."""
    serialization.MAX_CHUNK_SIZE = 64
    value = {"params": {"w": np.arange(60, dtype=np.float32).reshape(5, 12), "b": np.ones(3, BF16)}}
    path = os.path.join(work, "checkpoint_3")
    with open(path, "wb") as file:
        file.write(serialization.msgpack_serialize(value))
    if digests(path) != hashes(flat(value)):
        raise AssertionError("arrays differ")


def damage(work):
    whole = store(os.path.join(work, "whole"), tree(), ocdbt=False)
    os.remove(os.path.join(whole, "params.cut", "1.0"))
    found = shardscope("validate", whole, "--level", "files", expect=1)
    if "file.missing" not in {f["rule"] for f in found["findings"]}:
        raise AssertionError("a missing chunk is not found")
    try:
        ocp.PyTreeCheckpointer().restore(whole)
    except Exception as error:  # it raises Exception itself
        if "missing" not in str(error) and "tensorstore" not in str(error).lower():
            raise
        return
    raise AssertionError("Orbax restores a checkpoint without one of its chunks")


# ------------------------------------------------------------------ MaxText

def families():
    """(recipe, MaxText's name of the mapping, model, options for both directions, whether every value comes back)"""
    t = transformers
    common = dict(num_hidden_layers=3, hidden_size=HIDDEN, num_attention_heads=HEADS, num_key_value_heads=GROUPS, intermediate_size=FFN, vocab_size=VOCAB,
                  max_position_embeddings=64, tie_word_embeddings=False, pad_token_id=None, bos_token_id=1, eos_token_id=2, head_dim=HEAD_DIM)
    tied = dict(common, tie_word_embeddings=True, hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=16)
    experts = dict(num_experts_per_tok=2, moe_intermediate_size=FFN, norm_topk_prob=True)
    yield "llama", "LLAMA31", t.LlamaForCausalLM, t.LlamaConfig(**common)
    yield "qwen3", "QWEN", t.Qwen3ForCausalLM, t.Qwen3Config(**common)
    yield "qwen3", "QWEN", t.Qwen2ForCausalLM, t.Qwen2Config(**{k: v for k, v in common.items() if k != "head_dim"})
    yield "qwen3-moe", "QWEN", t.Qwen3MoeForCausalLM, t.Qwen3MoeConfig(**common, **experts, num_experts=EXPERTS, decoder_sparse_step=1, mlp_only_layers=[])
    yield "gemma2", "GEMMA2", t.Gemma2ForCausalLM, t.Gemma2Config(**dict(tied, num_hidden_layers=4))
    yield "gemma3", "GEMMA3", t.Gemma3ForCausalLM, t.Gemma3TextConfig(**dict(tied, num_hidden_layers=14))
    latent = {k: v for k, v in dict(common, num_hidden_layers=4, num_key_value_heads=HEADS).items() if k != "head_dim"}
    yield ("deepseek-v3", "DEEPSEEK", t.DeepseekV3ForCausalLM,
           t.DeepseekV3Config(**latent, **experts, q_lora_rank=12, kv_lora_rank=10, qk_rope_head_dim=4, qk_nope_head_dim=6, v_head_dim=8, n_routed_experts=EXPERTS,
                              n_shared_experts=1, first_k_dense_replace=1, n_group=2, topk_group=1))


def shape_of(key, shape, vocab, heads, sizes):
    """The shape in MaxText of a parameter that has this one at Hugging Face: the last part of the name says which (the DenseGeneral layers of
    layers/attentions.py, layers/attention_mla.py and layers/moe.py)."""
    if key.endswith(("token_embedder-embedding", "logits_dense-kernel")):
        return (vocab, shape[1]) if key.endswith("embedding") else (shape[1], vocab)
    for name, count in heads.items():
        if key.endswith(f"-{name}-kernel"):
            return (shape[1], count, shape[0] // count)
        if key.endswith(f"-{name}-bias"):
            return (count, shape[0] // count)
    if key.endswith("-out-kernel"):
        return (HEADS, shape[1] // HEADS, shape[0])
    return tuple(reversed(shape)) if len(shape) == 2 else tuple(shape)


def nested(tree):
    out = {}
    for key, value in tree.items():
        *path, last = key.split("-")
        at = out
        for part in path:
            at = at.setdefault(part, {})
        at[last] = value
    return out


class Family:
    def __init__(self, name, kind, model, config, dtype):
        torch.manual_seed(3)
        self.name, self.model = name, model(config).to(dtype)
        for parameter in self.model.state_dict().values():  # norms are ones or zeros when they are new
            if parameter.is_floating_point():
                parameter.copy_(torch.randn(parameter.shape))
        with tempfile.TemporaryDirectory() as work:  # the names of the files, which are not those of the modules for experts
            self.model.save_pretrained(work)
            self.state = read(work)
            with open(os.path.join(work, "config.json"), encoding="utf-8") as file:
                self.config = json.load(file)
        if name == "gemma3":  # MaxText knows the model with images, whose language model this is
            self.prefix = "model.language_model."
            self.table = {"text_config": self.config, "vision_config": {"num_hidden_layers": 0}}
        else:
            self.prefix, self.table = "model.", dict(self.config, head_dim=self.config.get("head_dim", HEAD_DIM))
        self.mapping = getattr(MAPPING, kind + "_MAXTEXT_TO_HF_PARAM_MAPPING")
        self.hooks = getattr(MAPPING, kind + "_MAXTEXT_TO_HF_PARAM_HOOK_FN")
        self.heads = {"query": HEADS, "key": self.config["num_key_value_heads"], "value": self.config["num_key_value_heads"], "wq_b": HEADS, "wkv_b": HEADS}
        self.vocab = VOCAB + (3 if kind in ("GEMMA2", "GEMMA3") else 0)  # which MaxText pads

    def hf(self, name):
        return self.state[name.replace(self.prefix, "model.", 1) if name.startswith(self.prefix) else name]

    def has(self, names):
        while isinstance(names, list):
            if not names:
                return False
            names = names[0]
        return (names.replace(self.prefix, "model.", 1) if names.startswith(self.prefix) else names) in self.state

    def to_maxtext(self, scanned):
        """MaxText's tree, flat, and the names at Hugging Face of each."""
        settings = types.SimpleNamespace(scan_layers=scanned, param_scan_axis=1)
        hooks = self.hooks(self.table, settings, scan_layers=scanned, saving_to_hf=False)
        tree = {}
        self.names = {key: names for key, names in self.mapping(self.table, settings, scan_layers=scanned).items() if self.has(names)}
        for key, names in self.names.items():
            first, stacked = names, []
            while isinstance(first, list):
                stacked.append(len(first))
                first = first[0]
            value = self.hf(first)
            shape = list(shape_of(key, value.shape, self.vocab, self.heads, None))
            remainder = "layers_remainder" in key
            if len(stacked) == 1:
                shape.insert(1 if scanned and not remainder else 0, stacked[0])
            elif len(stacked) == 2:
                shape = stacked + shape
            leaf = jax.ShapeDtypeStruct(tuple(shape), value.dtype)
            tree[key] = np.asarray(STACKING.get_hf_loading_function(names, self.hf, hooks.get(key), leaf, settings)()).astype(value.dtype)
        return tree

    def from_maxtext(self, tree, scanned):
        """What MaxText's hooks make of it for Hugging Face; the slices are those of process_maxtext_param."""
        settings = types.SimpleNamespace(scan_layers=scanned, param_scan_axis=1)
        hooks = self.hooks(self.table, settings, scan_layers=scanned, saving_to_hf=True)
        out = {}

        def put(key, name, value):
            shape = self.hf(name).shape
            chain = hooks.get(key) or []
            for hook in chain if isinstance(chain, list) else [chain]:
                value = hook(value, shape)
            out[name] = np.asarray(value).astype(self.hf(name).dtype).reshape(shape)
        for key, names in self.names.items():
            value = tree[key]  # of NumPy: XLA makes a product with the reciprocal of a division by one number
            if not isinstance(names, list):
                put(key, names, value)
            elif not isinstance(names[0], list):
                for i, name in enumerate(names):
                    put(key, name, np.take(value, i, axis=1 if scanned else 0))
            else:
                for e, inner in enumerate(names):
                    for i, name in enumerate(inner):
                        put(key, name, value[e][i])
        return {name.replace(self.prefix, "model.", 1) if name.startswith(self.prefix) else name: value for name, value in out.items()}

    def check(self, work, scanned):
        tree = self.to_maxtext(scanned)
        there, back = os.path.join(work, "hf"), os.path.join(work, "back")

        def to_hugging_face(state, *sets):
            source = store(os.path.join(work, "maxtext"), {**state, "opt_state": {"mu": state, "count": np.int32(4)}, "step": np.int32(4)}, ocdbt=True, zarr3=scanned)
            with open(os.path.join(source, "config.json"), "w", encoding="utf-8") as file:
                json.dump(self.config, file)
            mapped(source, there, "--to", "safetensors", "--map", self.name + "-hf-from-maxtext", *sets)
            tensors = read(there)
            shutil.rmtree(source)
            return tensors
        wanted = self.from_maxtext(tree, scanned)
        if next(iter(tree.values())).dtype == BF16:  # names and orders that have nothing to do with dtypes
            names = {re.sub(r"^params-decoder-((?:dense_|moe_)?layers)_(\d+)-", r"params-decoder-\1-\2-", key) + "-value": value for key, value in tree.items()}
            compare("from Flax NNX", to_hugging_face(nested(names)["params"]), wanted)
            shutil.rmtree(there)
            if scanned:
                turned = {key: np.moveaxis(value, 1, 0) if re.search("-(dense_|moe_)?layers-", key) else value for key, value in tree.items()}
                compare("from layers along axis 0", to_hugging_face({"params": nested(turned)}, "--set", "scan_axis=0"), wanted)
                shutil.rmtree(there)
        compare("to Hugging Face", to_hugging_face({"params": nested(tree)}), wanted)
        if set(wanted) != set(self.state):
            raise AssertionError(f"MaxText does not know {sorted(set(self.state) - set(wanted))}")
        # Scaled in one direction and back, a value of bfloat16 may be its neighbor; what is only reordered comes back as it was.
        same = sum(wanted[name].tobytes() == value.tobytes() for name, value in self.state.items())
        with open(os.path.join(there, "config.json"), "w", encoding="utf-8") as file:
            json.dump(self.config, file)
        loaded, report = type(self.model).from_pretrained(there, output_loading_info=True, dtype="auto")
        if any(report[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")):
            raise AssertionError(f"transformers says {report}")
        del loaded
        # Back, of the model as it was.
        original = os.path.join(work, "original")
        self.model.save_pretrained(original)
        sets = ["--set", f"padded_vocab_size={self.vocab}"] if self.vocab != VOCAB else []
        if self.name == "gemma3":
            sets += ["--set", f"blocks={self.config['num_hidden_layers'] // 6 if scanned else 0}"]
        else:
            sets += ["--set", f"scanned={int(scanned)}"]
        mapped(original, back, "--to", "safetensors", "--map", self.name + "-maxtext-from-hf", *sets)
        compare("to MaxText", read(back), {"params." + key.replace("-", "."): value for key, value in tree.items()})
        return len(tree), len(wanted), same


def main():
    failed = 0

    def attempt(title, function):
        nonlocal failed
        with tempfile.TemporaryDirectory() as work:
            try:
                said = function(work)
                print(f"ok   {title}" + (f": {said}" if said else ""), flush=True)
            except Exception:
                failed += 1
                print(f"FAIL {title}\n{traceback.format_exc()}", flush=True)
    only = sys.argv[1:]
    for function in (layouts, items, chunked, damage):
        if not only or function.__name__ in only:
            attempt(function.__name__, function)
    for name, kind, model, config in families():
        if only and name not in only:
            continue
        for dtype in (torch.bfloat16, torch.float32):
            family = Family(name, kind, model, config, dtype)
            for scanned in (True, False):
                attempt(f"{model.__name__}, {dtype}, {'scanned' if scanned else 'not scanned'}", lambda work: "%d tensors of MaxText, %d of Hugging Face, %d with the model's own bits"
                        % family.check(work, scanned))
    return 1 if failed else 0


if __name__ == "__main__":
    MAPPING, STACKING = maxtext("param_mapping"), maxtext("tensor_handling")
    sys.exit(main())

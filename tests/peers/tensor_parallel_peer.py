"""Files of tensor-parallel ranks that we write, read back by the steps that their loaders document: vLLM's ShardedStateLoader (each tensor of a rank's
state dict, of its shape, and no other), and Meta's Llama.build with what transformers' conversion made of its files. Both programs want GPUs, so their
rules are here in a few lines; the models are those of transformers, and come back through `--to hf`."""
import glob
import json
import os
import sys
import tempfile

from peercommon import shardscope

import torch
import transformers as t
from safetensors import safe_open

SIZES = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2, vocab_size=250,
             max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0)


def models():
    yield "llama", t.LlamaForCausalLM, t.LlamaConfig(**SIZES, tie_word_embeddings=False), torch.bfloat16
    yield "llama with biases", t.LlamaForCausalLM, t.LlamaConfig(**SIZES, tie_word_embeddings=False, attention_bias=True, mlp_bias=True), torch.float32
    yield "llama, tied", t.LlamaForCausalLM, t.LlamaConfig(**SIZES, tie_word_embeddings=True), torch.float32
    yield "mistral", t.MistralForCausalLM, t.MistralConfig(**SIZES, head_dim=16, tie_word_embeddings=False), torch.bfloat16
    yield "qwen2, tied", t.Qwen2ForCausalLM, t.Qwen2Config(**SIZES, tie_word_embeddings=True), torch.bfloat16
    yield "qwen3", t.Qwen3ForCausalLM, t.Qwen3Config(**SIZES, head_dim=16, tie_word_embeddings=False), torch.float16


def cut(whole, dim, rank, ranks):
    return whole.chunk(ranks, dim)[rank]


def vllm_state(state, config, rank, ranks):
    """What vLLM's loaders of weights put into the parameters of one rank (layers/linear.py, vocab_parallel_embedding.py, models/llama.py)."""
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    kv = config.num_key_value_heads
    copies = max(1, ranks // kv)
    rows = {"q": head * config.num_attention_heads // ranks, "kv": head * max(1, kv // ranks)}
    out = {}
    for layer in range(config.num_hidden_layers):
        p = "model.layers.%d." % layer
        for kind in ("weight", "bias"):
            if p + "self_attn.q_proj." + kind in state:
                q = state[p + "self_attn.q_proj." + kind].narrow(0, rank * rows["q"], rows["q"])
                keys = [state[p + "self_attn.%s_proj.%s" % (x, kind)].narrow(0, rank // copies * rows["kv"], rows["kv"]) for x in "kv"]
                out[p + "self_attn.qkv_proj." + kind] = torch.cat([q, *keys])
            if p + "mlp.gate_proj." + kind in state:
                out[p + "mlp.gate_up_proj." + kind] = torch.cat([cut(state[p + "mlp.%s_proj.%s" % (x, kind)], 0, rank, ranks) for x in ("gate", "up")])
        for name in ("self_attn.o_proj", "mlp.down_proj"):
            out[p + name + ".weight"] = cut(state[p + name + ".weight"], 1, rank, ranks)
            if p + name + ".bias" in state:
                out[p + name + ".bias"] = state[p + name + ".bias"]
        for name in ("input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm"):
            if p + name + ".weight" in state:
                out[p + name + ".weight"] = state[p + name + ".weight"]
        for scale in ("q", "k", "v", "prob"):
            out[p + "self_attn.attn._%s_scale" % scale] = torch.tensor(1.0)
    out["model.norm.weight"] = state["model.norm.weight"]
    padded = (config.vocab_size + 63) // 64 * 64
    embedding, output = state["model.embed_tokens.weight"], state["lm_head.weight"]
    # Of two names of one memory the loader keeps the smaller one.
    for name, whole in {"model.embed_tokens.weight": embedding, "lm_head.weight": output}.items():
        if config.tie_word_embeddings and name.startswith("model."):
            continue
        whole = torch.cat([whole, torch.zeros(padded - len(whole), whole.shape[1], dtype=whole.dtype)])
        out[name] = cut(whole, 0, rank, ranks)
    return out


def check_vllm(place, state, config, ranks):
    for rank in range(ranks):
        wanted = vllm_state(state, config, rank, ranks)
        files = glob.glob(os.path.join(place, "model-rank-%d-part-*.safetensors" % rank))
        assert files, "no file of rank %d" % rank
        for path in files:
            with safe_open(path, framework="pt") as file:
                for key in file.keys():
                    tensor = file.get_tensor(key)
                    assert tensor.shape == wanted[key].shape, (key, tensor.shape, wanted[key].shape)
                    parameter = torch.full_like(wanted[key], 7)
                    parameter.copy_(tensor)
                    assert torch.equal(parameter, wanted.pop(key)), "rank %d: %s differs" % (rank, key)
        assert not wanted, "rank %d lacks %s" % (rank, sorted(wanted))


def check_meta(place, state, config, ranks, columns):
    files = sorted(glob.glob(os.path.join(place, "*.pth")))
    assert len(files) == ranks, files
    loaded = [torch.load(path, map_location="cpu", weights_only=True) for path in files]
    params = json.load(open(os.path.join(place, "params.json")))
    dim, heads, kv = params["dim"], params["n_heads"], params["n_kv_heads"]
    assert (dim, heads, kv, params["n_layers"], params["vocab_size"]) == (
        config.hidden_size, config.num_attention_heads, config.num_key_value_heads, config.num_hidden_layers, config.vocab_size)
    hidden = int(2 * (4 * dim) / 3)
    hidden = int(params.get("ffn_dim_multiplier", 1) * hidden)
    multiple = params["multiple_of"]
    assert multiple * ((hidden + multiple - 1) // multiple) == config.intermediate_size, params
    assert params["norm_eps"] == config.rms_norm_eps

    def whole(name, dim):
        return loaded[0][name] if dim is None else torch.cat([part.pop(name) for part in loaded], dim)

    def halves(w, n):
        return w.view(n, w.shape[0] // n // 2, 2, w.shape[1]).transpose(1, 2).reshape(w.shape)

    made = {"model.embed_tokens.weight": whole("tok_embeddings.weight", 1 if columns else 0), "lm_head.weight": whole("output.weight", 0),
            "model.norm.weight": whole("norm.weight", None)}
    for layer in range(params["n_layers"]):
        ours, theirs = "layers.%d." % layer, "model.layers.%d." % layer
        made[theirs + "self_attn.q_proj.weight"] = halves(whole(ours + "attention.wq.weight", 0), heads)
        made[theirs + "self_attn.k_proj.weight"] = halves(whole(ours + "attention.wk.weight", 0), kv)
        for a, b, axis in (("attention.wv", "self_attn.v_proj", 0), ("attention.wo", "self_attn.o_proj", 1), ("feed_forward.w1", "mlp.gate_proj", 0),
                           ("feed_forward.w3", "mlp.up_proj", 0), ("feed_forward.w2", "mlp.down_proj", 1), ("attention_norm", "input_layernorm", None),
                           ("ffn_norm", "post_attention_layernorm", None)):
            made[theirs + b + ".weight"] = whole(ours + a + ".weight", axis)
    assert made.keys() == state.keys(), made.keys() ^ state.keys()
    wrong = [name for name in made if not torch.equal(made[name], state[name])]
    assert not wrong, wrong


def check_back(source, kind, state, place, *more):
    back = os.path.join(place, "back")
    shardscope("convert", source, back, "--to", "hf", "--overwrite", *more)
    model, report = kind.from_pretrained(back, output_loading_info=True, dtype="auto")
    assert not report["missing_keys"] and not report["unexpected_keys"], report
    found = model.state_dict()
    wrong = [name for name in state if not torch.equal(state[name], found[name])]
    assert found.keys() == state.keys() and not wrong, wrong


def main():
    done = failed = 0
    for name, kind, config, dtype in models():
        with tempfile.TemporaryDirectory() as place:
            torch.manual_seed(3)
            hf = os.path.join(place, "hf")
            model = kind(config).to(dtype)
            for parameter in model.parameters():
                parameter.data.normal_()
            model.save_pretrained(hf)
            state = model.state_dict()
            ways = [("vllm", ranks) for ranks in (1, 2, 4)]
            if name == "llama":
                ways += [("meta", 1), ("meta", 2), ("meta-llama2", 2)]
            for target, ranks in ways:
                done += 1
                out = os.path.join(place, "%s-%d" % (target, ranks))
                try:
                    shardscope("convert", hf, out, "--to", target, *(["--mesh", "tp=%d" % ranks] if ranks > 1 else []))
                    if target == "vllm":
                        check_vllm(out, state, config, ranks)
                    else:
                        check_meta(out, state, config, ranks, target == "meta-llama2")
                    check_back(out, kind, state, place, "--assets", hf)
                except Exception as error:  # one way that fails must not hide the others
                    failed += 1
                    print("FAIL %s, %s, %d ranks: %s: %s" % (name, target, ranks, type(error).__name__, error))
    print("%d ways, %d failures" % (done, failed))
    sys.stdout.flush()
    os._exit(1 if failed or not done else 0)


if __name__ == "__main__":
    main()

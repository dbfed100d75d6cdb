"""Files of tensor-parallel ranks that we write, read by the programs that they are for: vLLM's ShardedStateLoader has each rank's parameters as vLLM loads
them from the Hugging Face files, bit for bit, and Meta's Llama3.build gives the logits of transformers. Llama 2's code is not published as a
package: its placement is compared with the rules of transformers' conversion. All come back through `--to hf`."""
import glob
import json
import os
import sys
import tempfile
from types import ModuleType, SimpleNamespace

from forked_ranks import forked_ranks
from peercommon import shardscope

os.environ.update(VLLM_CPU_OMP_THREADS_BIND="nobind", VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1")

import torch
import torch.distributed.checkpoint as dcp
import transformers as t
from vllm.config import set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader import get_model_loader
from vllm.model_executor.models import llama, mistral, qwen2, qwen3  # noqa: F401  once, before the ranks are forked

# Images, which Llama 3's text models do not have, would need torchvision.
sys.modules["llama_models.llama3.multimodal.model"] = ModuleType("no images")
sys.modules["llama_models.llama3.multimodal.model"].CrossAttentionTransformer = None
from llama_models.llama3 import generation

SIZES = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2, vocab_size=250,
             max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0)


def models():
    yield "llama", t.LlamaForCausalLM, t.LlamaConfig(**SIZES, tie_word_embeddings=False), torch.bfloat16
    yield "llama with biases", t.LlamaForCausalLM, t.LlamaConfig(**SIZES, tie_word_embeddings=False, attention_bias=True, mlp_bias=True), torch.float32
    yield "llama, tied", t.LlamaForCausalLM, t.LlamaConfig(**SIZES, tie_word_embeddings=True), torch.float32
    yield "mistral", t.MistralForCausalLM, t.MistralConfig(**SIZES, head_dim=16, tie_word_embeddings=False), torch.bfloat16
    yield "qwen2, tied", t.Qwen2ForCausalLM, t.Qwen2Config(**SIZES, tie_word_embeddings=True), torch.bfloat16
    yield "qwen3", t.Qwen3ForCausalLM, t.Qwen3Config(**SIZES, head_dim=16, tie_word_embeddings=False), torch.float16


def vllm_state(place, load_format, dtype, ranks):
    """The model of this rank as vLLM has it in memory."""
    arguments = EngineArgs(place, load_format=load_format, tensor_parallel_size=ranks, skip_tokenizer_init=True, enforce_eager=True, max_model_len=64,
                           dtype=dtype)
    config = arguments.create_engine_config()
    with set_current_vllm_config(config):
        if not parallel_state.model_parallel_is_initialized():
            rank = int(os.environ["RANK"])
            os.environ["VLLM_DIST_IDENT"] = "%d-%s" % (os.getppid(), os.environ["MASTER_PORT"])
            parallel_state.init_distributed_environment(world_size=ranks, rank=rank, local_rank=rank, backend="gloo")
            parallel_state.initialize_model_parallel(ranks)
        return get_model_loader(config.load_config).load_model(vllm_config=config, model_config=config.model_config).state_dict()


def check_vllm(ours, hf, dtype, ranks):
    def rank():
        wanted, found = vllm_state(hf, "auto", dtype, ranks), vllm_state(ours, "sharded_state", dtype, ranks)
        wrong = [name for name in wanted if not torch.equal(wanted[name], found[name])]
        assert wanted.keys() == found.keys() and not wrong, wrong

    try:
        forked_ranks(ranks, rank, 500)
    finally:  # vLLM leaves its shared memory behind, and does not start where there is some of that name
        for left in glob.glob("/dev/shm/%d-*-cpushm_*" % os.getpid()):
            os.unlink(left)


def check_llama3(ours, hf, config, ranks):
    """Logits of Meta's own model, in float32; it rounds weights to bfloat16. Read anew, since a model that was cast has lost bits of its rotary frequencies."""
    ids = torch.tensor([[1, 5, 9, 77, 200, 249, 17, 3]])
    with torch.no_grad():
        model = t.LlamaForCausalLM.from_pretrained(hf, dtype=torch.float32)
        for parameter in model.parameters():
            parameter.data = parameter.data.bfloat16().float()
        wanted = model(ids).logits

    def rank():
        generation.Tokenizer = SimpleNamespace(get_instance=lambda: SimpleNamespace(n_words=config.vocab_size))
        generation.ChatFormat = lambda tokenizer: None
        theirs = generation.Llama3.build(ours, max_seq_len=64, max_batch_size=1, world_size=ranks, device="cpu").model.float()
        with torch.no_grad():
            found = theirs.forward(ids, 0)
        assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-4 * wanted.abs().max().item()), (found - wanted).abs().max()

    forked_ranks(ranks, rank, 500)


def check_llama2(place, state, config, ranks):
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

    made = {"model.embed_tokens.weight": whole("tok_embeddings.weight", 1), "lm_head.weight": whole("output.weight", 0),
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


def sources(name, hf, model, place):
    """The same model under other names: of Megatron, padded and stacked; of torchtitan; as training saves it, under a key, in DCP."""
    made = {"megatron": ["--map", "auto", "--to", "megatron", "--set", "padded_vocab_size=384"]}
    if name in ("llama", "qwen3"):
        made["torchtitan"] = ["--to", "dcp", "--map", name + "-torchtitan-from-hf"]
    found = {}
    for source, words in made.items():
        found[source] = os.path.join(place, source)
        shardscope("convert", hf, found[source], *words)
    found["training"] = os.path.join(place, "training")
    dcp.save({"model": model.state_dict()}, checkpoint_id=found["training"], no_dist=True)
    return found


def main():
    torch.set_num_threads(1)  # ranks that are forked beside the threads of a parallel loop would wait for them forever
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
            ways = [("vllm", ranks) for ranks in {"llama": (1, 2, 4), "qwen2, tied": (2, 4)}.get(name, (2,))]
            if name == "llama":
                ways += [("meta", 1), ("meta", 2), ("meta-llama2", 2)]
            if name == "llama, tied":
                ways += [("meta", 2)]
            others = sources(name, hf, model, place)
            ways = [("hf", *way) for way in ways]
            ways += [(source, target, 2) for source in others for target in (("vllm", "meta") if name.startswith("llama") else ("vllm",))]
            others["hf"] = hf
            if "biases" in name:  # Meta's code has none
                ways = [way for way in ways if way[1] == "vllm"]
            for source, target, ranks in ways:
                done += 1
                out = os.path.join(place, "%s-%s-%d" % (source, target, ranks))
                try:
                    shardscope("convert", others[source], out, "--to", target, "--assets", hf, *(["--mesh", "tp=%d" % ranks] if ranks > 1 else []))
                    if target == "vllm":
                        check_vllm(out, hf, dtype, ranks)
                    elif target == "meta":
                        check_llama3(out, hf, config, ranks)
                    else:
                        check_llama2(out, state, config, ranks)
                    check_back(out, kind, state, place, "--assets", hf)
                except Exception as error:  # one way that fails must not hide the others
                    failed += 1
                    print("FAIL %s from %s, %s, %d ranks: %s: %s" % (name, source, target, ranks, type(error).__name__, error))
    print("%d ways, %d failures" % (done, failed))
    sys.stdout.flush()
    os._exit(1 if failed or not done else 0)


if __name__ == "__main__":
    main()

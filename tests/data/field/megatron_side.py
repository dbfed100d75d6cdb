"""Helpers of make.py files: small models of several frameworks, and the truth about them from memory."""
from truth import *
import sys, os, io, tarfile, json, shutil
import torch, numpy as np
from safetensors.torch import save_file
H = "./made/"
def T(n, *s, dt=torch.bfloat16): return torch.from_numpy(f32(n, *s)).to(dt)
def tent(t):
    from hashlib import sha256
    t = t.contiguous()
    b = t.view(torch.uint8).numpy().tobytes() if t.dim() else t.reshape(1).view(torch.uint8).numpy().tobytes()
    return {"dtype": str(t.dtype)[6:], "shape": list(t.shape), "sha256": sha256(b).hexdigest(), "nan": 0, "inf": 0}
def fresh(n):
    shutil.rmtree(H + n, ignore_errors=True); os.makedirs(H + n + "/ckpt"); return H + n
# --- NeMo 1 LoRA adapter, TP2 PP2: .nemo tar with tp_rank_TT_pp_rank_PPP/model_weights.ckpt
def nemo_lora():
    d = fresh("nemo1-lora-tp2pp2"); L, h, r = 4, 16, 4; qkv = 32
    tens, tmp = {}, d + "/x"
    os.makedirs(tmp)
    open(tmp + "/model_config.yaml", "w").write("tensor_model_parallel_size: 2\npipeline_model_parallel_size: 2\nnum_layers: 4\nhidden_size: 16\npeft:\n  peft_scheme: lora\n  lora_tuning:\n    adapter_dim: 4\n")
    full = {}
    for l in range(L):
        a, b = T("A%d" % l, r, h), T("B%d" % l, qkv, r)   # linear_in is row-sharded over r (gather), linear_out column
        full["model.decoder.layers.%d.self_attention.adapter_layer.lora_kqv_adapter.linear_in.weight" % l] = a
        full["model.decoder.layers.%d.self_attention.adapter_layer.lora_kqv_adapter.linear_out.weight" % l] = b
    for p in range(2):
        for t in range(2):
            o = tmp + "/tp_rank_%02d_pp_rank_%03d" % (t, p); os.makedirs(o)
            sd = {}
            for i in range(2):
                l = 2 * p + i
                k = "self_attention.adapter_layer.lora_kqv_adapter."
                sd["model.decoder.layers.%d.%slinear_in.weight" % (i, k)] = full["model.decoder.layers.%d.%slinear_in.weight" % (l, k)].chunk(2, 0)[t].clone()
                sd["model.decoder.layers.%d.%slinear_out.weight" % (i, k)] = full["model.decoder.layers.%d.%slinear_out.weight" % (l, k)].chunk(2, 0)[t].clone()
            torch.save(sd, o + "/model_weights.ckpt")
    with tarfile.open(d + "/ckpt/megatron_gpt_peft_lora_tuning.nemo", "w") as t: t.add(tmp, arcname="./")
    shutil.copytree(tmp, d + "/ckpt/unpacked"); shutil.rmtree(tmp)
    write(d, "NeMo 1 LoRA adapter saved with TP2 PP2: tp_rank_TT_pp_rank_PPP/model_weights.ckpt, in a .nemo tar and unpacked", "by hand after NeMo 1 save_restore_connector", "nemo1", {k: tent(v) for k, v in full.items()}, 4, {"dims": ["pp", "tp"], "shape": [2, 2]})

# --- vLLM save_sharded_state TP2
def vllm():
    d = fresh("vllm-sharded-tp2"); full, ranks = {}, [{}, {}]
    full["model.embed_tokens.weight"] = T("emb", 32, 16); full["model.norm.weight"] = T("n", 16); full["lm_head.weight"] = T("lm", 32, 16)
    for l in range(2):
        p = "model.layers.%d." % l
        q, k, v, o = T(p+"q", 16, 16), T(p+"k", 8, 16), T(p+"v", 8, 16), T(p+"o", 16, 16)
        g, u, dn = T(p+"g", 24, 16), T(p+"u", 24, 16), T(p+"d", 16, 24)
        for t in range(2):
            R = ranks[t]
            R[p+"self_attn.qkv_proj.weight"] = torch.cat([x.chunk(2, 0)[t] for x in (q, k, v)])
            R[p+"self_attn.o_proj.weight"] = o.chunk(2, 1)[t].contiguous()
            R[p+"mlp.gate_up_proj.weight"] = torch.cat([g.chunk(2, 0)[t], u.chunk(2, 0)[t]])
            R[p+"mlp.down_proj.weight"] = dn.chunk(2, 1)[t].contiguous()
            R[p+"input_layernorm.weight"] = T(p+"l1", 16); R[p+"post_attention_layernorm.weight"] = T(p+"l2", 16)
        full[p+"self_attn.qkv_proj.weight"] = torch.cat([q, k, v]); full[p+"self_attn.o_proj.weight"] = o; full[p+"mlp.gate_up_proj.weight"] = torch.cat([g, u]); full[p+"mlp.down_proj.weight"] = dn
        full[p+"input_layernorm.weight"] = T(p+"l1", 16); full[p+"post_attention_layernorm.weight"] = T(p+"l2", 16)
    for t in range(2):
        R = ranks[t]; R["model.embed_tokens.weight"] = full["model.embed_tokens.weight"].chunk(2, 0)[t].contiguous(); R["lm_head.weight"] = full["lm_head.weight"].chunk(2, 0)[t].contiguous(); R["model.norm.weight"] = full["model.norm.weight"]
        save_file({k: v.clone() for k, v in R.items()}, d + "/ckpt/model-rank-%d-part-0.safetensors" % t)
    json.dump({"architectures": ["LlamaForCausalLM"], "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "intermediate_size": 24, "vocab_size": 32, "torch_dtype": "bfloat16"}, open(d + "/ckpt/config.json", "w"))
    write(d, "vLLM save_sharded_state of a Llama over TP2: every file has the same names, each holds its rank's part", "by hand after vllm ShardedStateLoader", "safetensors", {k: tent(v) for k, v in full.items()}, 2, {"dims": ["tp"], "shape": [2]})

# --- TensorRT-LLM rank files
def trt():
    d = fresh("trtllm-tp2"); full, ranks = {}, [{}, {}]
    full["transformer.vocab_embedding.weight"] = T("e", 32, 16); full["transformer.ln_f.weight"] = T("f", 16)
    for l in range(2):
        p = "transformer.layers.%d." % l
        full[p+"attention.dense.weight"] = T(p+"o", 16, 16); full[p+"mlp.proj.weight"] = T(p+"p", 16, 24); full[p+"mlp.fc.weight"] = T(p+"fc", 24, 16); full[p+"input_layernorm.weight"] = T(p+"ln", 16)
    for t in range(2):
        R = {}
        for k, v in full.items():
            R[k] = v.clone() if "ln" in k or "layernorm" in k or "vocab" in k else (v.chunk(2, 1)[t].contiguous().clone() if "dense" in k or "proj" in k else v.chunk(2, 0)[t].contiguous().clone())
        save_file(R, d + "/ckpt/rank%d.safetensors" % t)
    json.dump({"architecture": "LlamaForCausalLM", "dtype": "bfloat16", "num_hidden_layers": 2, "hidden_size": 16, "mapping": {"world_size": 2, "tp_size": 2, "pp_size": 1}}, open(d + "/ckpt/config.json", "w"))
    write(d, "TensorRT-LLM checkpoint over TP2: rank0.safetensors, rank1.safetensors with the same names", "by hand", "safetensors", {k: tent(v) for k, v in full.items()}, 2, {"dims": ["tp"], "shape": [2]})

# --- grok-2 style presharded
def grok():
    d = fresh("grok-tp4"); full = {}
    com = {"model.embed_tokens.weight": T("e", 32, 16), "model.norm.weight": T("n", 16)}
    full.update(com)
    for l in range(2):
        for e in range(2):
            p = "model.layers.%d.block_sparse_moe.experts.%d." % (l, e)
            full[p+"w1.weight"] = T(p+"1", 24, 16); full[p+"w3.weight"] = T(p+"3", 24, 16); full[p+"w2.weight"] = T(p+"2", 16, 24)
    wm = {}
    save_file(com, d + "/ckpt/pytorch_model-00000-TP-common.safetensors")
    for t in range(4):
        R = {k: (v.chunk(4, 1)[t] if "w2" in k else v.chunk(4, 0)[t]).contiguous().clone() for k, v in full.items() if "experts" in k}
        save_file(R, d + "/ckpt/pytorch_model-00001-TP-%03d.safetensors" % t)
    json.dump({"architectures": ["Grok1ForCausalLM"], "hidden_size": 16, "num_local_experts": 2}, open(d + "/ckpt/config.json", "w"))
    write(d, "model published in tensor-parallel files: pytorch_model-NNNNN-TP-RRR.safetensors with the same names, -TP-common.safetensors with whole ones", "by hand", "safetensors", {k: tent(v) for k, v in full.items()}, 4, {"dims": ["tp"], "shape": [4]})

# --- xla fsdp
def xla():
    d = fresh("xla-fsdp-4"); W = 4; full = {"fc1.weight": T("1", 10, 6, dt=torch.float32), "fc1.bias": T("b", 10, dt=torch.float32), "fc2.weight": T("2", 3, 10, dt=torch.float32)}
    for r in range(W):
        model, info = {}, {}
        for k, v in full.items():
            flat = v.reshape(-1); n = -(-flat.numel() // W); n = -(-n // 128) * 128  # shards are padded to 128 elements
            pad = torch.nn.functional.pad(flat, (0, n * W - flat.numel()))
            sk = "_fpw_module." + k.rsplit(".", 1)[0] + "._fsdp_shard." + k.rsplit(".", 1)[1]
            model[sk] = pad[r * n:(r + 1) * n].clone()
            info[sk] = {"_orig_size": v.shape, "_orig_name": k.rsplit(".", 1)[1]}
        md = {"shard_info": {"": info}, "flatten_info": {}, "buffer_info": {}, "world_size": W, "rank": r}
        torch.save({"model": model, "shard_metadata": md, "optimizer": {"state": {}, "param_groups": []}}, d + "/ckpt/final_ckpt_rank-%08d-of-%08d.pth" % (r, W))
    write(d, "torch_xla FSDP: one file for each rank with model and shard_metadata, parameters flat, padded to a multiple of 128 and cut", "by hand after torch_xla state_dict_utils", "xla_fsdp", {k: tent(v) for k, v in full.items()}, 4)

# --- NxD
def nxd():
    d = fresh("nxd-tp2pp1"); full = {"model.embed_tokens.weight": T("e", 32, 16), "model.layers.0.self_attn.o_proj.weight": T("o", 16, 16), "model.norm.weight": T("n", 16)}
    os.makedirs(d + "/ckpt/step_100/model")
    for t in range(2):
        R = {"model.embed_tokens.weight": full["model.embed_tokens.weight"].chunk(2, 0)[t].clone(), "model.layers.0.self_attn.o_proj.weight": full["model.layers.0.self_attn.o_proj.weight"].chunk(2, 1)[t].clone(), "model.norm.weight": full["model.norm.weight"].clone()}
        torch.save(R, d + "/ckpt/step_100/model/dp_rank_00_tp_rank_%02d_pp_rank_00.pt" % t)
    open(d + "/ckpt/step_100/checkpoint", "w").write("1"); open(d + "/ckpt/step_100/done", "w").write("1"); open(d + "/ckpt/newest", "w").write("step_100")
    write(d, "AWS Neuron NxD: model/dp_rank_00_tp_rank_TT_pp_rank_PP.pt for each rank, done as mark of the end, newest as tracker", "by hand after neuronx_distributed/trainer/checkpoint.py", "nxd", {k: tent(v) for k, v in full.items()}, 2, {"dims": ["tp"], "shape": [2]})

import sys, os, io, json, shutil, argparse, pickle
import torch, numpy as np, torch.distributed.checkpoint as dcp
H = "./made/"
def T(n, *s, dt=torch.float32): return torch.from_numpy(f32(n, *s)).to(dt)
def fresh(n):
    shutil.rmtree(H + n, ignore_errors=True); os.makedirs(H + n + "/ckpt"); return H + n
def save(sd, p): dcp.save(sd, checkpoint_id=p, no_dist=True)
L, h, heads, kv, hd, ffn, V = int(os.environ.get("LAYERS", 2)), 16, 4, 2, 4, 24, 32
def llama(prefix="", l0=0, dt=torch.float32, wv=False):
    """megatron names + HF truth"""
    m, hf = {}, {}
    m["embedding.word_embeddings.weight"] = hf["model.embed_tokens.weight"] = T("emb", V, h, dt=dt)
    for l in range(L):
        p, q = "decoder.layers.%d." % l, "model.layers.%d." % l
        Q, K, Vv = T(p+"q", heads*hd, h, dt=dt), T(p+"k", kv*hd, h, dt=dt), T(p+"v", kv*hd, h, dt=dt)
        hf[q+"self_attn.q_proj.weight"], hf[q+"self_attn.k_proj.weight"], hf[q+"self_attn.v_proj.weight"] = Q, K, Vv
        m[p+"self_attention.linear_qkv.weight"] = torch.cat([Q.reshape(kv, heads//kv*hd, h), K.reshape(kv, hd, h), Vv.reshape(kv, hd, h)], 1).reshape(-1, h)
        m[p+"self_attention.linear_proj.weight"] = hf[q+"self_attn.o_proj.weight"] = T(p+"o", h, heads*hd, dt=dt)
        m[p+"self_attention.linear_qkv.layer_norm_weight"] = hf[q+"input_layernorm.weight"] = T(p+"n1", h, dt=dt)
        m[p+"mlp.linear_fc1.layer_norm_weight"] = hf[q+"post_attention_layernorm.weight"] = T(p+"n2", h, dt=dt)
        g, u = T(p+"g", ffn, h, dt=dt), T(p+"u", ffn, h, dt=dt)
        hf[q+"mlp.gate_proj.weight"], hf[q+"mlp.up_proj.weight"] = g, u
        if wv: m[p+"mlp.linear_fc1.weight_w"], m[p+"mlp.linear_fc1.weight_v"] = g, u
        else: m[p+"mlp.linear_fc1.weight"] = torch.cat([g, u])
        m[p+"mlp.linear_fc2.weight"] = hf[q+"mlp.down_proj.weight"] = T(p+"d", h, ffn, dt=dt)
    m["decoder.final_layernorm.weight"] = hf["model.norm.weight"] = T("nf", h, dt=dt)
    m["output_layer.weight"] = hf["lm_head.weight"] = T("lm", V, h, dt=dt)
    return m, hf
ARGS = argparse.Namespace(num_layers=L, hidden_size=h, num_attention_heads=heads, num_query_groups=kv, group_query_attention=True, kv_channels=hd, ffn_hidden_size=ffn, vocab_size=V, padded_vocab_size=V, swiglu=True, ckpt_format="fsdp_dtensor", use_megatron_fsdp=True, tensor_model_parallel_size=1, pipeline_model_parallel_size=1, world_size=1, iteration=10)
# A fsdp_dtensor as Megatron-LM's save: model, optimizer{state: {name: {exp_avg..}}, param_to_group_meta}, args, iteration, rng
def fsdp():
    d = fresh("mfsdp-llama"); m, hf = llama(wv=True, dt=torch.bfloat16)
    sd = {"model": {"module." + k: v for k, v in m.items()}, "args": ARGS, "iteration": 10, "checkpoint_version": 3.0,
          "optimizer": {"state": {"module." + k: {"exp_avg": v.float() * .1, "exp_avg_sq": v.float() ** 2, "master_param": v.float(), "step": torch.tensor(10.)} for k, v in m.items()}, "param_to_group_meta": {"module." + k: {"lr": 1e-3, "betas": (0.9, 0.95), "wd_mult": 1.0} for k in m}},
          "opt_param_scheduler": {"max_lr": 1e-3, "num_steps": 80}, "rng_state": {"torch_rng_state": torch.arange(4, dtype=torch.uint8)}}
    save(sd, d + "/ckpt/iter_0000010"); open(d + "/ckpt/latest_checkpointed_iteration.txt", "w").write("10")
    t = {}
    for k, v in m.items():
        t["model.module." + k] = tent(v)
        for s, x in (("exp_avg", v.float() * .1), ("exp_avg_sq", v.float() ** 2), ("master_param", v.float()), ("step", torch.tensor(10.))): t["optimizer.state.module.%s.%s" % (k, s)] = tent(x)
    write(d, "Megatron-FSDP run (--ckpt-format fsdp_dtensor) of a Llama: DCP with model.module.*, gate and up apart, optimizer state with master_param", "torch 2.15 dcp.save, names after Megatron-LM fsdp_dtensor_checkpoint.py", "dcp", t, 1, hf={k: tent(v) for k, v in hf.items()})

# B megatron torch_dist helper
def mdist(path, sd, common=None, **kw):
    save(sd, path); json.dump({"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch", "common_backend_version": 1}, open(path + "/metadata.json", "w"))
    torch.save(common or {"args": ARGS, "iteration": 10, "checkpoint_version": 3.0}, path + "/common.pt")
# C Megatron-Bridge / ms-swift LoRA adapter only checkpoint
def lora(swift):
    d = fresh("lora-" + ("swift" if swift else "bridge")); t = {}; r = 4
    for l in range(L):
        for mod, i, o in (("self_attention.linear_qkv", h, 32), ("self_attention.linear_proj", h, h), ("mlp.linear_fc1", h, 2*ffn), ("mlp.linear_fc2", ffn, h)):
            p = "decoder.layers.%d.%s." % (l, mod)
            a, b = T(p+"A", r, i, dt=torch.bfloat16), T(p+"B", o, r, dt=torch.bfloat16)
            if swift: t[p+"lora_A.default.weight"], t[p+"lora_B.default.weight"] = a, b
            else: t[p+"adapter.linear_in.weight"], t[p+"adapter.linear_out.weight"] = a, b
    root = d + "/ckpt/iter_0000010"; mdist(root, t)
    open(d + "/ckpt/latest_checkpointed_iteration.txt", "w").write("10")
    if swift: json.dump({"lora_rank": 4, "lora_alpha": 8, "target_modules": ["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"], "mcore_model": "base"}, open(root + "/args.json", "w"))
    else:
        open(root + "/run_config.yaml", "w").write("peft:\n  _target_: megatron.bridge.peft.lora.LoRA\n  dim: 4\n  alpha: 8\n"); torch.save({"step": torch.tensor(10)}, root + "/train_state.pt"); torch.save({"step": torch.tensor(10)}, d + "/ckpt/latest_train_state.pt")
    write(d, "adapter weights alone, of " + ("ms-swift" if swift else "Megatron-Bridge"), "torch 2.15 dcp.save", "megatron", {k: tent(v) for k, v in t.items()}, 1)

# D Qwen3-Next-like: gated attention + GDN under qwen3-moe recipe; linear_qgkv
def qnext():
    d = fresh("qwen3-next"); m = {}
    m["embedding.word_embeddings.weight"] = T("e", V, h); m["decoder.final_layernorm.weight"] = T("f", h); m["output_layer.weight"] = T("o", V, h)
    E = 4
    for l in range(4):
        p = "decoder.layers.%d." % l
        m[p+"input_layernorm.weight"] = T(p+"i", h); m[p+"pre_mlp_layernorm.weight"] = T(p+"pm", h)
        if l == 3:
            m[p+"self_attention.linear_qgkv.weight"] = T(p+"qg", kv*(2*heads//kv+2)*hd, h); m[p+"self_attention.linear_proj.weight"] = T(p+"lp", h, heads*hd)
            m[p+"self_attention.q_layernorm.weight"] = T(p+"qn", hd); m[p+"self_attention.k_layernorm.weight"] = T(p+"kn", hd)
        else:
            m[p+"self_attention.in_proj.weight"] = T(p+"ip", 40, h); m[p+"self_attention.conv1d.weight"] = T(p+"c", 24, 1, 4); m[p+"self_attention.A_log"] = T(p+"A", 4); m[p+"self_attention.dt_bias"] = T(p+"dt", 4)
            m[p+"self_attention.out_norm.weight"] = T(p+"on", 4); m[p+"self_attention.out_proj.weight"] = T(p+"op", h, 16)
        m[p+"mlp.router.weight"] = T(p+"r", E, h)
        m[p+"mlp.experts.experts.linear_fc1.weight"] = T(p+"f1", E, 24, h); m[p+"mlp.experts.experts.linear_fc2.weight"] = T(p+"f2", E, h, 12)
        m[p+"mlp.shared_experts.linear_fc1.weight"] = T(p+"s1", 24, h); m[p+"mlp.shared_experts.linear_fc2.weight"] = T(p+"s2", h, 12); m[p+"mlp.shared_experts.gate_weight"] = T(p+"sg", 1, h)
    mdist(d + "/ckpt", m)
    write(d, "Qwen3-Next-like: gated delta net in three layers of four, gated attention (linear_qgkv) in the fourth, shared expert with a gate", "torch dcp, names after megatron core gated_delta_net", "megatron", {k: tent(v) for k, v in m.items()}, 1)

# E MTP
def mtp():
    d = fresh("mtp-llama-moe"); m, hf = llama()
    p = "mtp.layers.0."
    m[p+"enorm.weight"] = T("en", h); m[p+"hnorm.weight"] = T("hn", h); m[p+"eh_proj.weight"] = T("eh", h, 2*h); m[p+"final_layernorm.weight"] = T("mf", h)
    for k, v in list(m.items()):
        if k.startswith("decoder.layers.1."): m[k.replace("decoder.layers.1.", p + "transformer_layer.")] = v + 1
    mdist(d + "/ckpt", m)
    write(d, "model with one prediction layer (mtp.layers.0.*, transformer_layer inside)", "torch dcp", "megatron", {k: tent(v) for k, v in m.items()}, 1)

# F Mimo/NRVx local checkpoint
def local():
    d = fresh("nvrx-local"); m, _ = llama()
    root = d + "/ckpt/local/node-a/rank_0"; 
    for r in range(2):
        p = d + "/ckpt/local/node%d/%d" % (r, r); os.makedirs(p)
        torch.save({"tensors": [v for v in list(m.values())[r::2]], "hollow": b"x"}, p + "/iter_0000010_%d_local.pt" % r)
    write(d, "local checkpoints of nvidia-resiliency-ext", "by hand", "nvrx", {}, 2)

# G EP lost experts (each rank renumbers its experts)
def eplost():
    d = fresh("ep-lost-experts"); t = {}
    for l in range(2):
        t["layers.%d.mlp.router.weight" % l] = T("r%d" % l, 4, h)
        for e in range(2): t["layers.%d.mlp.experts.%d.w1.weight" % (l, e)] = T("w%d%d" % (l, e), 12, h)
    save({"model": t}, d + "/ckpt/step_4"); json.dump({"step": 4}, open(d + "/ckpt/step_4/metadata.json", "w")); os.symlink("step_4", d + "/ckpt/latest")
    json.dump({"num_experts": 4, "num_hidden_layers": 2, "hidden_size": h, "model_type": "qwen3_moe"}, open(d + "/ckpt/step_4/config.json", "w"))
    write(d, "experts of one rank only: each rank numbered its experts from 0", "torch dcp", "dcp", {"model." + k: tent(v) for k, v in t.items()}, 1)

# H modelopt: several same (1,) amax from different ranks is a save-time error; the state afterwards holds modelopt_state dir + per expert amax
def modelopt():
    d = fresh("modelopt"); m, _ = llama(); root = d + "/ckpt/iter_0000010"
    for k in list(m):
        if "linear" in k and k.endswith("weight") and "norm" not in k: m[k[:-6] + "weight_quantizer._amax"] = T(k + "am", 1); m[k[:-6] + "input_quantizer._amax"] = torch.tensor(1.5)
    mdist(root, m); os.makedirs(root + "/modelopt_state"); mdist(root + "/modelopt_state", {"x": torch.zeros(1)}); open(d + "/ckpt/latest_checkpointed_iteration.txt", "w").write("10")
    write(d, "Megatron checkpoint with Model-Optimizer's quantizers and modelopt_state/", "torch dcp", "megatron", {k: tent(v) for k, v in m.items()}, 1)

# I OLMo-core, Automodel
def others():
    d = fresh("olmo-core"); m, hf = llama()
    for s in (100, 200):
        r = d + "/ckpt/run/step%d" % s; save({"model": hf, "optim": {k + ".exp_avg": v * .1 for k, v in hf.items()}}, r + "/model_and_optim"); os.makedirs(r + "/train")
        torch.save({"global_step": s, "rng": {"torch": torch.arange(8, dtype=torch.uint8)}}, r + "/train/rank0.pt"); json.dump({"version": "2.0"}, open(r + "/.metadata.json", "w")); json.dump({"model": {}}, open(r + "/config.json", "w"))
    write(d, "OLMo-core run", "torch dcp", "dcp", {"model." + k: tent(v) for k, v in hf.items()}, 1)
    d = fresh("automodel")
    for s in (10, 20):
        r = d + "/ckpt/checkpoints/epoch_0_step_%d" % s; os.makedirs(r + "/model")
        from safetensors.torch import save_file
        save_file(hf, r + "/model/model-00001-of-00001.safetensors"); save({"optim": {"state": {k: {"exp_avg": v * .1} for k, v in hf.items()}}}, r + "/optim"); torch.save({"seed": 1}, r + "/rng.pt"); open(r + "/config.yaml", "w").write("a: 1\n")
    os.symlink("epoch_0_step_20", d + "/ckpt/checkpoints/LATEST")
    write(d, "NeMo AutoModel run", "torch dcp", "dcp", {k: tent(v) for k, v in hf.items()}, 1)


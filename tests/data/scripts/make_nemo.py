#!/usr/bin/env python3
"""make_nemo.py OUT: models and LoRA adapters of NeMo 1, laid out by hand after nlp_overrides.py (NLPSaveRestoreConnector), model_utils.py
(inject_model_parallel_rank) and adapters/parallel_adapters.py: model_weights.ckpt of each rank, in directories and in .nemo archives. Needs torch."""
import hashlib
import json
import pathlib
import shutil
import sys
import tarfile

import torch

H, FFN, QKV, VOCAB, LAYERS, RANK = 8, 12, 16, 24, 4, 4


class Case:
    def __init__(self, out, name, tp=1, pp=1, **config):
        self.place, self.tp, self.pp, self.whole = pathlib.Path(out) / name, tp, pp, {}
        self.ranks = {(t, p): {} for p in range(pp) for t in range(tp)}
        self.config = {"tensor_model_parallel_size": tp, "pipeline_model_parallel_size": pp, "num_layers": LAYERS, "hidden_size": H, **config}
        (self.place / "ckpt").mkdir(parents=True)

    def put(self, name, whole, cut=None, stages=None, local=None, parts=None):
        """`local`: the name on a rank; `parts`: sizes along dimension 0, each cut by itself."""
        whole = whole.bfloat16()
        self.whole[name] = whole
        for (t, p), state in self.ranks.items():
            if stages is not None and p not in stages:
                continue
            mine = whole if cut is None else torch.cat([w.chunk(self.tp, cut)[t] for w in whole.split(parts or whole.shape[cut], cut)], cut)
            state[local or name] = mine.contiguous().clone()

    def layers(self, stack, put):
        each = LAYERS // self.pp
        for layer in range(LAYERS):
            put(lambda name, whole, **kw: self.put(f"{stack}.{layer}.{name}", whole, stages=[layer // each], local=f"{stack}.{layer % each}.{name}", **kw), layer)

    def files(self, place):
        place.mkdir(parents=True, exist_ok=True)
        (place / "model_config.yaml").write_text("".join(f"{k}: {v}\n" for k, v in self.config.items()) + "peft:\n  peft_scheme: lora\n")
        for (t, p), state in self.ranks.items():
            if self.tp * self.pp == 1:
                torch.save(state, place / "model_weights.ckpt")
                continue
            rank = place / (f"tp_rank_{t:02}_pp_rank_{p:03}" if self.pp > 1 else f"mp_rank_{t:02}")
            rank.mkdir()
            torch.save(state, rank / "model_weights.ckpt")

    def save(self, archive=None, drop=(), cut=0, **more):
        ckpt = self.place / "ckpt"
        self.files(ckpt / "x" if archive else ckpt)
        for name in drop:
            (ckpt / ("x" if archive else "") / name).unlink()
        if archive:
            with tarfile.open(ckpt / archive, "w:", format=tarfile.PAX_FORMAT) as tar:
                tar.add(ckpt / "x", arcname="./")
            shutil.rmtree(ckpt / "x")
            more["file"] = archive
            if cut:
                (ckpt / archive).write_bytes((ckpt / archive).read_bytes()[:cut])
        tensors = {n: {"dtype": "bfloat16", "shape": list(w.shape), "sha256": hashlib.sha256(w.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest(),
                       "nan": 0, "inf": 0} for n, w in self.whole.items()}
        expected = {"about": self.place.name, "framework": "by hand after NeMo 1", "format": "megatron", "world_size": self.tp * self.pp,
                    "mesh": {"dims": ["pp", "tp"], "shape": [self.pp, self.tp]}, "tensors": tensors, "objects": {}, **more}
        (self.place / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def gpt(case):
    case.put("model.embedding.word_embeddings.weight", torch.randn(VOCAB, H), 0, [0])

    def layer(put, _):
        put("self_attention.linear_qkv.weight", torch.randn(QKV, H), cut=0)
        put("self_attention.linear_qkv.layer_norm_weight", torch.randn(H))
        put("self_attention.linear_proj.weight", torch.randn(H, H), cut=1)
        put("mlp.linear_fc1.weight", torch.randn(2 * FFN, H), cut=0, parts=FFN)
        put("mlp.linear_fc1.layer_norm_weight", torch.randn(H))
        put("mlp.linear_fc2.weight", torch.randn(H, FFN), cut=1)

    case.layers("model.decoder.layers", layer)
    case.put("model.decoder.final_layernorm.weight", torch.randn(H), None, [case.pp - 1])
    case.put("model.output_layer.weight", torch.randn(VOCAB, H), 0, [case.pp - 1])
    return case


def old_gpt(case):
    """The names before Megatron-Core, gate and up projection as two parameters."""
    case.put("model.language_model.embedding.word_embeddings.weight", torch.randn(VOCAB, H), 0)

    def layer(put, _):
        put("self_attention.query_key_value.weight", torch.randn(QKV, H), cut=0)
        put("self_attention.dense.weight", torch.randn(H, H), cut=1)
        put("mlp.dense_h_to_4h.weight", torch.randn(FFN, H), cut=0)
        put("mlp.dense_h_to_4h_2.weight", torch.randn(FFN, H), cut=0)
        put("mlp.dense_4h_to_h.weight", torch.randn(H, FFN), cut=1)
        put("input_layernorm.weight", torch.randn(H))

    case.layers("model.language_model.encoder.layers", layer)
    return case


def lora(case, only=range(LAYERS)):
    def layer(put, number):
        if number not in only:
            return
        a, m = "self_attention.adapter_layer.lora_", "mlp.adapter_layer.lora_"
        put(a + "kqv_adapter.linear_in.weight", torch.randn(RANK, H), cut=0)
        put(a + "kqv_adapter.linear_out.weight", torch.randn(QKV, RANK), cut=0)
        put(a + "dense_attention_adapter.linear_in.weight", torch.randn(RANK, H), cut=1)
        put(a + "dense_attention_adapter.linear_out.weight", torch.randn(H, RANK), cut=0)
        put(m + "hto4h_adapter.linear_in.weight", torch.randn(RANK, H), cut=0)
        put(m + "hto4h_adapter.linear_out.weight", torch.randn(2 * FFN, RANK), cut=0, parts=FFN)
        put(m + "4htoh_adapter.linear_in.weight", torch.randn(RANK, FFN), cut=1)
        put(m + "4htoh_adapter.linear_out.weight", torch.randn(H, RANK), cut=0)

    case.layers("model.decoder.layers", layer)
    return case


def main():
    out = sys.argv[1]
    torch.manual_seed(9)
    gpt(Case(out, "gpt-tp2", 2, activation="fast-swiglu")).save()
    gpt(Case(out, "gpt-tp2pp2-archive", 2, 2, activation="fast-swiglu")).save("gpt.nemo")
    gpt(Case(out, "gpt-single-archive")).save("gpt.nemo")
    old_gpt(Case(out, "gpt-before-core-tp2", 2, activation="swiglu")).save()
    lora(Case(out, "lora-tp2pp2", 2, 2)).save()
    lora(Case(out, "lora-some-layers-pp2", 1, 2), [0, 2]).save("lora.nemo")
    lost = "tp_rank_01_pp_rank_001/model_weights.ckpt"
    lora(Case(out, "bad-rank-lost", 2, 2)).save("lora.nemo", drop=[lost], findings=[{"kind": "missing-file", "file": lost}])
    gpt(Case(out, "bad-archive-cut", 2)).save("gpt.nemo", cut=26000, findings=[{"kind": "truncated", "file": "gpt.nemo"}])


if __name__ == "__main__":
    main()

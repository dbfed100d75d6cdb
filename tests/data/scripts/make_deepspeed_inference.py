#!/usr/bin/env python3
"""make_deepspeed_inference.py OUT: what DeepSpeed's inference engine writes on two ranks (save_mp_checkpoint_path), on the processor, and one without the last part of both ranks. Needs
deepspeed, transformers, torch. Run it with `DS_ACCELERATOR=cpu python -m torch.distributed.run --nproc_per_node 2`."""
import hashlib
import json
import os
import pathlib
import shutil
import sys

import deepspeed
import torch
from transformers import LlamaConfig, LlamaForCausalLM

out, rank, world = pathlib.Path(sys.argv[1]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
name = "deepspeed-inference-tp2"
deepspeed.init_distributed("gloo")
torch.manual_seed(3)
config = LlamaConfig(vocab_size=48, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False)
model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
tensors = {n: {"dtype": "bfloat16", "shape": list(t.shape), "sha256": hashlib.sha256(t.contiguous().view(torch.int16).numpy().tobytes()).hexdigest(), "nan": 0, "inf": 0}
           for n, t in model.state_dict().items()}
place = out / name / "ckpt"
deepspeed.init_inference(model, tensor_parallel={"tp_size": world}, dtype=torch.bfloat16, replace_with_kernel_inject=False, save_mp_checkpoint_path=str(place))
torch.distributed.barrier()
if rank == 0:
    listed = place / "ds_inference_config.json"
    listed.write_text(listed.read_text().replace(str(place), "/models/llama"))
    expected = {"about": name, "framework": f"deepspeed {deepspeed.__version__}", "format": "tensor_parallel", "world_size": world, "mesh": {"dims": ["tp"], "shape": [world]},
                "tensors": tensors, "objects": {}}
    (out / name / "expected.json").write_text(json.dumps(expected, indent=1))
    bad = "bad-deepspeed-inference-part-lost"
    shutil.copytree(out / name, out / bad)
    for r in range(world):
        (out / bad / "ckpt" / f"tp_{r:02}_07.pt").unlink()
    (out / bad / "expected.json").write_text(json.dumps({**expected, "about": bad, "tensors": {}, "findings": [{"kind": "missing-file", "file": "tp_01_07.pt"}]}, indent=1))

"""What the pages' blocks find: checkpoints under the names that a page uses, and stand-ins for programs of the user's."""
import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import time

import torch
import torch.distributed.checkpoint as dcp
from conftest import genuine

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ["SHARDSCOPE"]

# Programs that stay are asked to end once they have said something.
SHARDSCOPE = f"""#!/usr/bin/env bash
case " $* " in
*" serve "*) ready=http ;;
*" watch "*) ready=. ; set -- "$@" --settle 0 ;;
*) exec {PROGRAM} "$@" ;;
esac
coproc {PROGRAM} "$@"
while IFS= read -r line <&"${{COPROC[0]}}"; do
    printf '%s\\n' "$line"
    [[ $line != *$ready* && $ready != . ]] || break
done
kill -TERM "$COPROC_PID"
wait "$COPROC_PID"
code=$?
[ $code -eq 143 ] || exit $code
"""
# Starts as many ranks as it is told, all of them here; of a training nothing.
LAUNCHER = f"""#!/usr/bin/env bash
count=1
while :; do
    case $1 in
    -N | -np | --nproc-per-node) count=$2; shift 2 ;;
    --ntasks-per-node) shift 2 ;;
    -*) shift ;;
    *) break ;;
    esac
done
[ "$1" = shardscope ] || exit 0
[ "$count" -gt 1 ] || exec "$@"
export WORLD_SIZE=$count LOCAL_WORLD_SIZE=$count MASTER_ADDR=127.0.0.1
export MASTER_PORT=$({sys.executable} -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
for ((rank = 0; rank < count; ++rank)); do RANK=$rank LOCAL_RANK=$rank "$@" & ranks+=($!); done
for rank in "${{ranks[@]}}"; do wait "$rank" || code=$?; done
exit "${{code:-0}}"
"""
STANDS_FOR = {
    "shardscope": SHARDSCOPE,
    # The window opens what `info` opens.
    "shardscope-gui": f'#!/bin/sh\nfor place; do case $place in -*) ;; *) {PROGRAM} info "$place" > /dev/null || exit; esac; done\n',
    # The other host is this one.
    "ssh": '#!/bin/sh\nwhile :; do case $1 in -[Lop]) shift 2 ;; -*) shift ;; *) break ;; esac; done\nshift\n[ $# -eq 0 ] || exec sh -c "$*"\n',
    "scp": '#!/bin/sh\ncp "${1#*:}" . 2> /dev/null || [ -e "${1#*:}" ]\n',
    **dict.fromkeys(("torchrun", "mpirun", "srun"), LAUNCHER),
    **dict.fromkeys(("mail", "notify", "logger"), "#!/bin/sh\n"),
}


def convert(source, destination, *words):
    pathlib.Path(destination).parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([PROGRAM, "convert", str(source), str(destination), *words], check=True, capture_output=True)


def copy(case, place):
    shutil.copytree(genuine(case), place)


def save_dcp(state, place):
    place.parent.mkdir(parents=True, exist_ok=True)
    dcp.save(state, checkpoint_id=str(place))


def model_state(prefix="model.", layers=2, width=8):
    """A model under the names of transformers' Llama."""
    generator = torch.Generator().manual_seed(1)
    shapes = {"embed_tokens.weight": (32, width), "norm.weight": (width,)}
    for layer in range(layers):
        for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj"):
            shapes[f"layers.{layer}.{name}.weight"] = (width, width)
        shapes[f"layers.{layer}.mlp.down_proj.weight"] = (width, width)
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"layers.{layer}.{name}.weight"] = (width,)
    weights = {prefix + name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    return weights | {"lm_head.weight": torch.randn((32, width), generator=generator)}


CONFIG = ('{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 8, "vocab_size": 32,'
          ' "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 8}')


def save_step(place):
    """A DCP of a trainer that keeps model and optimizer under keys of their own."""
    weights = model_state()
    optimizer = {"state": {name: {"exp_avg": torch.zeros_like(w), "step": torch.tensor(3.0)} for name, w in weights.items()}}
    save_dcp({"model": weights, "optim": optimizer, "step": 1000}, place)


def save_run(place, steps=("iter_0000010", "iter_0000020", "iter_0000030"), whole=2):
    for step in steps:
        save_dcp({"model": model_state(), "optimizer": {"state": {"lm_head.weight": {"exp_avg": torch.zeros(32, 8)}}}}, place / step)
    for step in steps[whole:]:
        (place / step / ".metadata").unlink()


def readme(root):
    here = root / "here"
    for name in ("tests", "resources"):
        (here / name).symlink_to(ROOT / name)
    save_run(here / "run")
    save_run(root / "runs/7")
    save_dcp(model_state(), here / "step-1000")
    (here / "Llama-3-8B").mkdir()
    (here / "Llama-3-8B/config.json").write_text(CONFIG)


def from_a_laptop(root):
    save_dcp(model_state(), root / "runs/7/step-1000")
    (root / "models").mkdir()


def gates(root):
    save_run(root / "runs/7", whole=3)
    (root / ".state").write_text(f"RUN={root}/runs/7\nCHECKPOINT={root}/runs/7/iter_0000030\n")
    convert(save_hf(root / "hf"), root / "here/golden", "--to", "safetensors", "--dtype", "*=bfloat16")
    # What the user's own test exports.
    (root / "here/conftest.py").write_text('import builtins, shutil\nbuiltins.export = lambda place: shutil.copytree("golden", place)\n')


def half_of_my_nodes(root):
    case = "torch_ranks/t2.15.0-verl-fsdp1-mesh-w2"
    for step in ("global_step_10", "global_step_20"):
        place = root / "runs/7" / step
        convert(genuine(case), place / "actor", "--to", "torch-ranks", "--mesh", "fsdp=16")
        for rank in range(16):
            shutil.copy(genuine(case, f"extra_state_world_size_2_rank_{rank % 2}.pt"), place / "actor" / f"extra_state_world_size_16_rank_{rank}.pt")
        torch.save({"_snapshot": 1}, place / "data.pt")
    (root / "runs/7/global_step_20/actor/model_world_size_16_rank_3.pt").unlink()
    save_dcp(model_state(), root / "runs/8/step-1000")
    copy("deepspeed/z3_bf16_w2", root / "runs/9x")
    (root / "runs/9").mkdir()
    (root / "runs/9x/global_step3").rename(root / "runs/9/global_step300")


def save_hf(place, width=8, config=CONFIG):
    """A model of transformers as a directory with pytorch_model.bin."""
    place.mkdir()
    torch.save(model_state(width=width), place / "pytorch_model.bin")
    (place / "config.json").write_text(config)
    return place


def to_hugging_face(root):
    save_step(root / "runs/7/step-1000")
    (root / "runs/8").mkdir()
    shutil.copytree(genuine("deepspeed/z3_bf16_w2", "global_step3"), root / "runs/8/global_step500")
    copy("megatron/m0.16.1-gpt-tp2pp2-qwen", root / "runs/10/iter_0001000")
    expected = json.loads(pathlib.Path(genuine("megatron/m0.16.1-gpt-tp2pp2-qwen")).with_name("expected.json").read_text())
    for model, config in (("Llama-3-8B", CONFIG), ("Qwen2.5-7B", json.dumps({"model_type": "qwen2", **expected["hf_config"]}))):
        (root / "models" / model).mkdir(parents=True)
        (root / "models" / model / "config.json").write_text(config)
    convert(save_hf(root / "hf"), root / "runs/9/step-1000", "--to", "dcp", "--map", "llama-torchtitan-from-hf")


def python(root):
    here = root / "here"
    state = model_state(width=256) | {"model.embed.weight": torch.randn(512, 64)}
    save_dcp({**state, "step": 1000}, here / "step-1000")
    shutil.copytree(here / "step-1000", root / "checkpoints/step-1000")
    save_run(root / "runs/7", whole=3)
    shutil.copytree(genuine("deepspeed/trainer_z3_bf16"), here / "trainer")
    (here / "global_step100").symlink_to(next((here / "trainer").rglob("global_step*")))
    (here / "megatron").mkdir()
    copy("megatron/m0.16.1-gpt-tp2-llama", here / "megatron/iter_0001000")
    save_dcp({name: torch.randn(32000, 256).half() for name in ("model.embed_tokens.weight", "lm_head.weight")}, here / "exported-model")
    for run in "ab":
        save_dcp(model_state(), here / f"run-{run}/step-1000")
    model = torch.nn.Module()
    model.net = torch.nn.Sequential()
    from shardscope import open as opened
    for name in (tensors := opened(str(here / "global_step100")).torch(weights_only=True)):
        layer = name.split(".")[1]
        if layer not in dict(model.net.named_children()) and name.endswith("weight"):
            model.net.add_module(layer, torch.nn.Linear(*reversed(tensors[name].shape)))
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters()), "use": lambda name, tensor: None, "trainer": Trainer()}


class Trainer:
    def train(self, resume_from_checkpoint):
        assert resume_from_checkpoint.endswith("iter_0000030"), resume_from_checkpoint


def runs(root):
    save_run(root / "runs/7", steps=("iter_0000100", "iter_0000200", "iter_0000300"))
    (root / "runs/7/latest_checkpointed_iteration.txt").write_text("300")


class Slurm:
    """One of the test's own on this machine, with nodes as large as the page's; `there` is False where it cannot be had."""

    COMMAND = ROOT / "tests/cluster/slurm"

    def __init__(self, root):
        self.root = root
        started = subprocess.run([self.COMMAND, "start", root / "slurm", "4", "16"], capture_output=True, text=True)
        assert started.returncode in (0, 77), started
        self.there = started.returncode == 0
        if not self.there:
            print(started.stdout, file=sys.stderr)
            return
        # The ranks of a step stay here: its nodes are names of this machine, which are no addresses. Workers get steps of it.
        srun = root / "bin/srun"
        srun.rename(root / "bin/ranks-here")
        srun.write_text(f'#!/bin/sh\ncase " $* " in *" --on ranks"*) exec "{root}/bin/ranks-here" "$@" ;; esac\nexec {shutil.which("srun")} "$@"\n')
        srun.chmod(0o755)
        os.environ["SLURM_CONF"] = str(root / "slurm/slurm.conf")

    def busy(self):
        return bool(subprocess.run(["squeue", "--noheader"], capture_output=True, text=True, check=True).stdout.strip())

    def end(self, passed):
        """What blocks that passed have left to run ends well."""
        if not self.there:
            return
        try:
            names = ("model", "step-1000-tp8", "model-of-a-job", "model-of-a-recipe")
            until = time.monotonic() + 240
            while passed and ((left := [name for name in names if not (self.root / "scratch" / name).exists()]) or self.busy()):
                assert time.monotonic() < until, f"not written: {left}"
                time.sleep(0.2)
        finally:
            subprocess.run([self.COMMAND, "stop", self.root / "slurm"])
            del os.environ["SLURM_CONF"]


def distributed(root):
    save_dcp(model_state(), root / "here/step-1000")
    job = {"source": f"{root}/scratch/step-1000", "destination": f"{root}/scratch/model-of-a-recipe", "format": "safetensors"}
    (root / "here/saved.json").write_text(json.dumps({"schema": "shardscope.recipe/1", "job": job}))
    for disk in ("data", "local", "scratch"):
        save_dcp(model_state(), root / disk / "step-1000")
    torch.save(model_state(), root / "here/model.pt")
    return {"slurm": Slurm(root)}


def remote(root):
    save_dcp(model_state(), root / "data/step-1000")
    save_dcp(model_state(), root / "data/step-2000")


def serve(root):
    save_dcp(model_state(), root / "checkpoints/step-1000")
    save_run(root / "checkpoints/run")


def user_guide(root):
    save_dcp(model_state(), root / "here/step-1000")


def mapping(root):
    """From Hugging Face: an adapter as Megatron has it, and a model as MaxText has it."""
    lora_run(root, 64)
    convert(save_hf(root / "hf"), root / "here/run/40", "--to", "dcp", "--map", "llama-maxtext-from-hf")


def megatron(root):
    copy("megatron/m0.16.1-fsdp-dtensor", root / "here/fsdp/iter_0000100")


def recipes(root):
    copy("megatron/m0.16.1-gpt-tp2-llama", root / "here/step-1000")
    copy("colossalai/tp2_fused_qkv", root / "here/colossal-tp2")
    (root / "here/llama-hf").mkdir()
    torch.save(model_state(), root / "here/llama-hf/pytorch_model.bin")
    (root / "here/llama-hf/config.json").write_text(CONFIG)


def lora_run(root, width):
    """An adapter of Hugging Face as a run of Megatron has it."""
    adapter = root / "adapter"
    adapter.mkdir()
    low = {}
    for layer in range(2):
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            for half, shape in (("lora_A", (4, width)), ("lora_B", (width, 4))):
                low[f"base_model.model.model.layers.{layer}.self_attn.{name}.{half}.weight"] = torch.randn(shape)
    torch.save(low, adapter / "adapter_model.bin")
    (adapter / "adapter_config.json").write_text('{"r": 4, "lora_alpha": 8, "peft_type": "LORA"}')
    convert(adapter, root / "here/lora-run/iter_0000500", "--to", "dcp", "--map", "llama-megatron-from-peft")


def packaging(root):
    (root / "here/build").symlink_to(ROOT / "build")


def tensor_parallel(root):
    """A model that eight ranks can share."""
    config = json.loads(CONFIG) | {"hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 8, "intermediate_size": 64}
    save_hf(root / "here/llama-hf", 64, json.dumps(config))


def adapters(root):
    lora_run(root, 64)
    base = root / "here/Llama-3-8B"
    convert(save_hf(root / "hf"), base, "--to", "safetensors")
    (base / "config.json").write_text(CONFIG)
    adapter = root / "here/runs/lora/checkpoint-500"
    adapter.mkdir(parents=True)
    factors = {f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_{name}.weight": torch.ones(shape)
               for layer in range(2) for name, shape in (("A", (2, 8)), ("B", (8, 2)))}
    torch.save(factors, adapter / "adapter_model.bin")
    (adapter / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 2, "lora_alpha": 4}')


WORLDS = {
    "docs/adapters.md": adapters,
    "docs/python.md": python,
    "docs/runs.md": runs,
    "docs/distributed.md": distributed,
    "docs/remote.md": remote,
    "docs/serve.md": serve,
    "docs/user-guide.md": user_guide,
    "docs/recipes.md": recipes,
    "docs/formats/mapping.md": mapping,
    "docs/formats/megatron.md": megatron,
    "docs/formats/tensor_parallel.md": tensor_parallel,
    "docs/packaging.md": packaging,
    "README.md": readme,
    "docs/tutorials/from-a-laptop.md": from_a_laptop,
    "docs/tutorials/gates.md": gates,
    "docs/tutorials/half-of-my-nodes.md": half_of_my_nodes,
    "docs/tutorials/to-hugging-face.md": to_hugging_face,
}


def make(page, root):
    """Names that Python blocks of the page find."""
    for name in ("bin", "here", "home", "state", "config"):
        (root / name).mkdir()
    for name, text in STANDS_FOR.items():
        program = root / "bin" / name
        program.write_text(text)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return WORLDS[page](root) or {}

"""Conversions of DeepSpeed, Megatron-Core, Orbax and files of ranks."""
import json
import os
import shutil
import subprocess
import sys

from measure import BIN, HERE, best, child, convert, headline, mib, peer_python, python, row, warm


def to_safetensors(title, peer, ours, against, headline_as=None):
    """The same job with verification and without, as two rows, and its memory. `ours` converts with these options; `against` names the peer."""
    theirs, found, words = best(2, peer), {}, ("--to", "safetensors")
    for verify, target in (("digest", ">= 5x"), ("none", "")):
        mine = found[verify] = best(2, lambda: ours(*words, "--verify", verify))
        row("%s: to safetensors%s" % (title, ", not verified" if verify == "none" else ""), "%.2f s" % mine[0], "%s %.2f s" % (against, theirs[0]),
            "%.1fx" % (theirs[0] / mine[0]), target, " ".join(("convert SRC DST", *words)) + (" --verify none" if verify == "none" else ""))
    if headline_as:
        headline(headline_as, found["digest"], found["none"][0], against, theirs, ">= 5x")
    row("  memory of the process", mib(mine[1]), mib(theirs[1]), "%.1fx" % (theirs[1] / mine[1]), "<= 512 MiB")


def bench_deepspeed(work, size):
    python_there = peer_python("deepspeed")
    environment = dict(os.environ, DS_ACCELERATOR="cpu")
    source, out = os.path.join(work, "zero3"), os.path.join(work, "out")
    subprocess.run([python_there, os.path.join(HERE, "make_zero3.py"), source, str(size / 3)], check=True, env=environment)

    def peer(*words):
        shutil.rmtree(out, ignore_errors=True)
        warm(source)
        found = child([python_there, *words], env=environment, stderr=subprocess.DEVNULL)
        os.sync()  # ours are on the disk at the end
        return found

    def ours(*words):
        warm(source)
        return convert(source, out, *words)

    # One file: the command line's shards need huggingface_hub.
    code = """
import sys
from deepspeed.utils.zero_to_fp32 import convert_zero_checkpoint_to_fp32_state_dict
convert_zero_checkpoint_to_fp32_state_dict(sys.argv[1], sys.argv[2], max_shard_size=None, safe_serialization=True)
"""
    title = "ZeRO-3, 8 ranks, %g GiB of masters and moments" % size
    masters = ("--to", "safetensors", "--select", "optimizer.state.*.fp32", "--rename", r"^optimizer\.state\.(.*)\.fp32$=$1")
    written = [os.path.join(work, "written")]

    def probe(*words):
        """Writes the same bytes, as fast as this disk does."""
        os.sync()
        warm(written[0])
        found = json.loads(child([BIN + "/io_probe", *words, *written, os.path.join(work, "probe")])[2])["seconds"]
        os.unlink(os.path.join(work, "probe"))
        return found

    # In turn, so that what else the machine does meets all of them.
    theirs, mine, probes = [], {"digest": [], "none": []}, {"digest": [], "none": []}
    for _ in range(3):
        theirs.append(peer("-c", code, source, out))
        for verify in mine:
            os.sync()
            mine[verify].append(ours(*masters, "--verify", verify))
            if not os.path.exists(written[0]):
                os.rename(os.path.join(out, "model.safetensors"), written[0])
            probes[verify].append(probe(*(["--read-back"] if verify == "digest" else [])))
    os.unlink(written[0])
    theirs = min(theirs, key=lambda r: r[0])
    for verify, target in (("digest", ">= 5x"), ("none", "")):
        seconds, limit = min(r[0] for r in mine[verify]), min(probes[verify])
        row("%s: masters to safetensors%s" % (title, ", not verified" if verify == "none" else ""), "%.2f s" % seconds,
            "zero_to_fp32, safetensors %.2f s" % theirs[0], "%.1fx" % (theirs[0] / seconds), target,
            " ".join(("convert SRC DST", *masters[:2], *(w if w[0] == "-" else "'%s'" % w for w in masters[2:]))) + (" --verify none" if verify == "none" else ""))
        row("  against a probe that only writes%s the same bytes" % (" and reads back" if verify == "digest" else ""), "%.2f s" % seconds,
            "%.2f s" % limit, "%.2f" % (seconds / limit), "<= 1.1" if verify == "digest" else "")
    headline("ZeRO-3, 8 ranks, masters of %g GiB of state to safetensors <sup>2</sup>" % size, min(mine["digest"], key=lambda r: r[0]),
             min(r[0] for r in mine["none"]), "`zero_to_fp32`, not synced,", theirs, ">= 5x")
    mine = mine["none"][-1]
    row("  memory of the process", mib(mine[1]), mib(theirs[1]), "%.1fx" % (theirs[1] / mine[1]), "<= 512 MiB")
    row("  bytes read / needed", "%.3f" % (mine[2]["bytes_read"] / (size * 2**30 / 3)) if "bytes_read" in mine[2] else "", "", "", "<= 1.01")
    shutil.rmtree(out, ignore_errors=True)
    if "universal" in subprocess.run([BIN + "/shardscope", "formats", "--json"], stdout=subprocess.PIPE, text=True, check=True).stdout:
        theirs = best(1, lambda: peer("-m", "deepspeed.checkpoint.ds_to_universal", "--input_folder", os.path.join(source, "global_step10"), "--output_folder", out))
        mine = best(2, lambda: ours("--to", "deepspeed", "--variant", "universal", "--verify", "none"))
        row("%s: to universal" % title, "%.2f s" % mine[0], "ds_to_universal %.2f s" % theirs[0], "%.1fx" % (theirs[0] / mine[0]), ">= 5x",
            "convert SRC DST --to deepspeed --variant universal --verify none")
    shutil.rmtree(out, ignore_errors=True)
    shutil.rmtree(source)


def bench_megatron(work, size):
    python_there = peer_python("megatron")
    source, out = os.path.join(work, "megatron"), os.path.join(work, "out")
    subprocess.run([python_there, "-W", "ignore", os.path.join(HERE, "make_megatron_dist.py"), source, str(size)], check=True, stderr=subprocess.DEVNULL)
    code = """
import os, sys, torch
import torch.distributed as dist
import megatron_on_cpu
from megatron.core import dist_checkpointing
from safetensors.torch import save_file
dist.init_process_group('gloo', init_method='file://' + sys.argv[2] + '.meeting', rank=0, world_size=1)
tensors = {n: t for n, t in dist_checkpointing.load_plain_tensors(sys.argv[1]).items() if isinstance(t, torch.Tensor)}
os.makedirs(sys.argv[2])
save_file(tensors, os.path.join(sys.argv[2], 'model.safetensors'))
dist.destroy_process_group()
os.sync()
os._exit(0)
"""
    environment = dict(os.environ, PYTHONPATH=os.path.join(HERE, "../peers"))

    def peer():
        shutil.rmtree(out, ignore_errors=True)
        warm(source)
        return child([python_there, "-W", "ignore", "-c", code, source, out], env=environment, stderr=subprocess.DEVNULL)

    def ours(*words):
        warm(source)
        return convert(source, out, *words)

    title = "Megatron-Core TP2 x PP2 x DP2, %g GiB, weights and optimizer" % size
    to_safetensors(title, peer, ours, "`load_plain_tensors` + `save_file`", "Megatron-Core TP2 x PP2 x DP2, %g GiB, to safetensors <sup>1</sup>" % size)
    mine = best(2, lambda: ours("--to", "megatron", "--mesh", "pp=1,dp=2,tp=4", "--verify", "none"))
    row("%s: to torch_dist of TP4 x DP2" % title, "%.2f s" % mine[0], "", "", "",
        "convert SRC DST --to megatron --mesh pp=1,dp=2,tp=4 --verify none")
    shutil.rmtree(out, ignore_errors=True)
    shutil.rmtree(source)


def bench_orbax(work, size):
    python_there = peer_python("orbax")
    source, out = os.path.join(work, "orbax"), os.path.join(work, "out")

    def made(what):
        shutil.rmtree(source, ignore_errors=True)
        subprocess.run([python_there, "-W", "ignore", os.path.join(HERE, "make_orbax.py"), source, what], check=True, stderr=subprocess.DEVNULL)

    code = """
import os, sys
os.environ['JAX_PLATFORMS'] = 'cpu'
import jax, numpy as np, orbax.checkpoint as ocp, torch
from etils import epath
from safetensors.torch import save_file
handler = ocp.PyTreeCheckpointHandler()
tree = handler.metadata(epath.Path(sys.argv[1]))
tree = getattr(tree, 'tree', tree)
arguments = jax.tree_util.tree_map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
restored = handler.restore(epath.Path(sys.argv[1]), args=ocp.args.PyTreeRestore(restore_args=arguments))
flat = {'.'.join(k.key for k in path): torch.from_numpy(np.ascontiguousarray(value).view(np.int16)).view(torch.bfloat16)
        for path, value in jax.tree_util.tree_flatten_with_path(restored)[0]}
os.makedirs(sys.argv[2])
save_file(flat, os.path.join(sys.argv[2], 'model.safetensors'))
os.sync()
"""

    def peer():
        shutil.rmtree(out, ignore_errors=True)
        warm(source)
        return child([python_there, "-W", "ignore", "-c", code, source, out], stderr=subprocess.DEVNULL)

    def ours(*words):
        warm(source)
        return convert(source, out, *words)

    made(str(size))
    title = "Orbax, OCDBT with zarr 2, 64 arrays, %g GiB of bfloat16" % size
    to_safetensors(title, peer, ours, "restore + save_file")
    shutil.rmtree(out, ignore_errors=True)
    made("many")
    warm(source)
    seconds, rss, _ = best(3, lambda: child([BIN + "/shardscope", "info", source, "--json"]))
    row("open of 10,000 arrays on 256 devices; memory", "%.2f s; %s" % (seconds, mib(rss)), "", "", "<= 1 s")
    shutil.rmtree(source)


def bench_ranks(work, size):
    world, source, out = 4, os.path.join(work, "ranks"), os.path.join(work, "out")
    for rank in range(world):
        subprocess.run([sys.executable, "-W", "ignore", os.path.join(HERE, "make_rank_files.py"), source, str(size), str(rank), str(world)], check=True)
    code = """
import os, sys, torch
from safetensors.torch import save_file
from torch.distributed.tensor import DTensor
files = ['model_world_size_%s_rank_%d.pt' % (sys.argv[3], rank) for rank in range(int(sys.argv[3]))]
parts = [torch.load(os.path.join(sys.argv[1], f), map_location='cpu', weights_only=False) for f in files]
whole = {}
for name in list(parts[0]):
    values = [part.pop(name) for part in parts]
    whole[name] = torch.cat([v._local_tensor for v in values], 0).contiguous()
os.makedirs(sys.argv[2], exist_ok=True)
save_file(whole, os.path.join(sys.argv[2], 'model.safetensors'))
os.sync()
"""

    def peer():
        shutil.rmtree(out, ignore_errors=True)
        warm(source)
        return python(code, source, out, str(world))

    def ours(*words):
        warm(source)
        return convert(source, out, *words)

    title = "files of %d ranks, %g GiB" % (world, size)
    to_safetensors(title, peer, ours, "load all, concatenate, save", title + ", to safetensors <sup>1</sup>")
    shutil.rmtree(out, ignore_errors=True)
    shutil.rmtree(source)

"""The files of ranks that we write, under a process group of as many gloo ranks: each rank loads its own file as verl does, or through Accelerate's own
load_fsdp_model() and load_fsdp_optimizer(), or through the checkpoint classes of verl and SkyRL (--loader), into DTensors, a model of FSDP2 and its optimizer, and what all ranks then hold together is compared with the
source bit for bit."""
import glob
import os
import sys
import tempfile
import traceback

import rl_loaders
from peerlib import cases, shardscope

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from accelerate import FullyShardedDataParallelPlugin, PartialState
from accelerate.utils.fsdp_utils import load_fsdp_model, load_fsdp_optimizer
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, empty
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from fixture_common import from_raw, raw, trec

# family, genuine case, mesh, rules, variant, what is loaded into a model of FSDP2
CASES = [
    ("dcp", "t2.15.0-fsdp2-adam", "fsdp=3", ["*weight:fsdp=0", "*bias:fsdp=0", "optim.*:fsdp=0"], "verl-cpu", True),
    ("dcp", "t2.15.0-fsdp2-adam", "ddp=2,fsdp=2", ["*weight:fsdp=0", "*bias:fsdp=0", "optim.*:fsdp=0"], "verl-cpu", True),
    ("dcp", "t2.15.0-fsdp2-adam", "fsdp=2", ["*weight:fsdp=0", "*bias:fsdp=0", "optim.*:fsdp=0"], "accelerate-cpu", True),
    ("dcp", "t2.15.0-fsdp2-tp", "dp=2,tp=2", ["*fc1.weight:dp=0,tp=0", "*fc2.weight:dp=0,tp=1", "*weight:dp=0"], "verl-cpu", False),
    ("torch_ranks", "t2.15.0-dtensor-kinds-w4", "fsdp=2", [], "verl-cpu", False),
    ("torch_ranks", "t2.15.0-verl-fsdp2-tp-w4", "fsdp=4", [], "verl-cpu", True),
    ("torch_save", "t2.15.0-dtypes", "fsdp=3", [], "verl-cpu", False),
]
# The same for the loaders of verl and SkyRL (--loader): one source has a scheduler.
RULES = ["*weight:fsdp=0", "*bias:fsdp=0", "optim.*:fsdp=0"]
RL_CASES = [
    ("dcp", "t2.15.0-fsdp2-adam", "fsdp=3", RULES, "verl-cpu", True),
    ("dcp", "t2.15.0-fsdp2-adam", "ddp=2,fsdp=2", RULES, "verl-cpu", True),
    ("torch_ranks", "t2.15.0-verl-fsdp2-tp-w4", "fsdp=2", [], "verl-cpu", True),
    ("torch_ranks", "t2.15.0-verl-fsdp2-tp-w4", "fsdp=4", [], "verl-cpu", True),
    ("torch_ranks", "t2.15.0-verl-hsdp-w4", "ddp=2,fsdp=2", [], "verl-cpu", True),
]


def file_of(path, variant, kind, world, rank):
    if variant.startswith("accelerate"):
        return os.path.join(path, "%s_0_rank%d.bin" % ("optimizer" if kind == "optim" else "pytorch_model_fsdp", rank))
    return os.path.join(path, "%s_world_size_%d_rank_%d.pt" % (kind, world, rank))


def flatten(value, path=()):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flatten(inner, path + (str(key),))
    elif isinstance(value, torch.Tensor):
        yield ".".join(path), value


class Node(torch.nn.Module):
    pass


def model_of(state):
    """A module whose parameters are the DTensors of the state dict, and whose buffers are its other tensors."""
    root = Node()
    for name, value in state.items():
        at = root
        *above, last = name.split(".")
        for part in above:
            if not hasattr(at, part):
                at.add_module(part, Node())
            at = getattr(at, part)
        if isinstance(value, DTensor):
            at.register_parameter(last, torch.nn.Parameter(torch.zeros(value.shape, dtype=value._local_tensor.dtype)))
        else:
            at.register_buffer(last, torch.zeros_like(value))
    return root


def whole(value, mesh):
    """The tensor that all ranks hold together, from what this rank loaded."""
    if not isinstance(value, DTensor):
        return value
    assert value.device_mesh == mesh, (value.device_mesh, mesh)
    # What load_state_dict does with each parameter.
    into = empty(value.shape, dtype=value._local_tensor.dtype, device_mesh=mesh, placements=value.placements)
    assert into._local_tensor.shape == value._local_tensor.shape, (into._local_tensor.shape, value._local_tensor.shape)
    into.copy_(value)
    local = into._local_tensor
    _, offset = compute_local_shape_and_global_offset(value.shape, mesh, value.placements)
    # As bytes: Gloo does not know every dtype.
    parts = [None] * dist.get_world_size()
    dist.all_gather_object(parts, (tuple(offset), tuple(local.shape), raw(local)))
    full = torch.zeros(value.shape, dtype=local.dtype)
    for offsets, shape, data in parts:
        full[tuple(slice(o, o + n) for o, n in zip(offsets, shape))] = from_raw(data, local.dtype, shape)
    return full


def check(found, expected, lost, what):
    count = 0
    for name, value in found.items():
        want = expected.get(name)
        assert want is not None, "%s: no such tensor in the source: %s" % (what, name)
        got = trec(value)
        for key in ("dtype", "shape", "sha256"):
            assert got[key] == want[key], "%s %s: %s is %s, expected %s" % (what, name, key, got[key], want[key])
        count += 1
    return count


def by_name(optim_truth, state):
    """State by number is in the order of the model's parameters."""
    names = [name for name, value in state.items() if isinstance(value, DTensor)]
    return names, {".".join([names[int(key.split(".")[0])], *key.split(".")[1:]]): want for key, want in optim_truth.items()}


def on_rank(rank, path, sizes, names, variant, fsdp, model_truth, optim_truth, parameters, loader, schedule):
    world = 1
    for size in sizes:
        world *= size
    os.environ.update(MASTER_ADDR="127.0.0.1", OMP_NUM_THREADS="1")
    dist.init_process_group("gloo", init_method="file://" + path + ".store", rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", tuple(sizes), mesh_dim_names=tuple(names))
    try:
        state = torch.load(file_of(path, variant, "model", world, rank), map_location="cpu", weights_only=False)
        count = check({name: whole(value, mesh) for name, value in state.items()}, model_truth, (), "model")
        assert count == len(model_truth), (count, sorted(set(model_truth) - set(state)))
        if fsdp:
            model = model_of(state)
            fully_shard(model, mesh=mesh)
            if loader != "torch":
                if not parameters:
                    parameters, optim_truth = by_name(optim_truth, state)
                named = dict(model.named_parameters())
                optimizer = torch.optim.AdamW([named[name] for name in parameters], lr=0.5)
                scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
                # SkyRL loads a scheduler's state whenever it has a scheduler.
                rl_loaders.load(loader, path, model, optimizer, scheduler if schedule or loader == "verl" else None)
                now = scheduler.state_dict()
                assert all(now[key] == value for key, value in schedule.items()), (now, schedule)
            # verl loads the plain state dict.
            elif variant.startswith("verl"):
                model.load_state_dict(state)
            else:
                # Of the accelerator its loaders need this state alone.
                os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_PORT="0")
                accelerator = PartialState(cpu=True)
                assert accelerator.process_index == rank and accelerator.num_processes == world
                plugin = FullyShardedDataParallelPlugin(fsdp_version=2, state_dict_type="SHARDED_STATE_DICT")
                load_fsdp_model(plugin, accelerator, model, path, use_dcp=False)
            loaded = {name: whole(value, mesh) for name, value in model.state_dict().items()}
            assert check(loaded, model_truth, (), "loaded model") == len(model_truth)
        optim_file = file_of(path, variant, "optim", world, rank)
        if loader != "torch":
            saved = get_optimizer_state_dict(model, optimizer)
            assert saved["param_groups"][0]["lr"] != 0.5
            found = {name: whole(value, mesh) for name, value in flatten(saved["state"])}
            assert check(found, optim_truth, (), "optimizer") == len(optim_truth) > 0
        elif optim_truth:
            saved = torch.load(optim_file, map_location="cpu", weights_only=False)
            if fsdp and parameters:
                named = dict(model.named_parameters())
                optimizer = torch.optim.AdamW([named[name] for name in parameters], lr=0.5)
                if variant.startswith("verl"):
                    optimizer.load_state_dict(saved)
                else:
                    load_fsdp_optimizer(plugin, accelerator, optimizer, model, path, use_dcp=False)
                saved = get_optimizer_state_dict(model, optimizer)
                assert saved["param_groups"][0]["lr"] != 0.5
            found = {name: whole(value, mesh) for name, value in flatten(saved["state"])}
            assert check(found, optim_truth, (), "optimizer") == len(optim_truth)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    dist.barrier()
    dist.destroy_process_group()
    # On a busy machine threads of torch were seen to abort a process that ends in order.
    os._exit(0)


def run(family, name, mesh, rules, variant, fsdp, loader="torch"):
    _, source, expected = next(case for case in cases(family, name) if case[0] == name)
    names, sizes = zip(*((axis.split("=")[0], int(axis.split("=")[1])) for axis in mesh.split(",")))
    world = 1
    for size in sizes:
        world *= size
    with tempfile.TemporaryDirectory() as place:
        out = os.path.join(place, "out")
        report = shardscope("convert", source, out, "--to", "torch-ranks", "--mesh", mesh, "--variant", variant, *[w for rule in rules for w in ("--shard", rule)])
        lost = {e["name"] for e in report["left_out"]}
        model, optim, parameters = {}, {}, []
        for key, want in expected["tensors"].items():
            if key in lost:
                continue
            for prefix in ("optimizer.", "optim."):
                if key.startswith(prefix + "state."):
                    optim[key[len(prefix) + 6:]] = want
                    break
            else:
                model[key[6:] if key.startswith("model.") and family == "dcp" else key] = want
        assert model, "nothing to compare"
        # Names of the parameters in the order of the optimizer.
        for key in optim:
            if key.endswith(".exp_avg") and not key.split(".")[0].isdigit():
                parameters.append(key[:-len(".exp_avg")])
        check_numbers = bool(parameters) or loader != "torch"
        schedule = {}
        for file in glob.glob(os.path.join(source, "extra_state_world_size_*_rank_0.pt")):
            schedule = torch.load(file, weights_only=False)["lr_scheduler"]
        # Forked, since the imports take longer than all else that a rank does.
        mp.start_processes(on_rank, (out, list(sizes), list(names), variant, fsdp, model, optim if check_numbers else {}, parameters, loader, schedule),
                           nprocs=world, start_method="fork")
        print(family, name, mesh, variant, "" if loader == "torch" else "by " + loader + (" with a scheduler" if schedule else ""), "->", len(model), "tensors of the model,", len(optim) if check_numbers else 0, "of the optimizer on", world, "ranks")


def main():
    import torch._dynamo  # noqa: F401  what an optimizer imports
    torch.set_num_threads(1)  # threads do not outlive a fork
    failures = 0
    if sys.argv[1:2] == ["--loader"]:
        rl_loaders.make_ready()
        loaders, only = sys.argv[2].split(","), sys.argv[3:]
        jobs = [case + (loader,) for loader in loaders for case in RL_CASES]
    else:
        jobs, only = CASES, sys.argv[1:]
    for case in jobs:
        if only and only[0] not in case[1] + case[2] + case[4]:
            continue
        try:
            run(*case)
        except Exception:
            traceback.print_exc()
            print("failed:", *case)
            failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())

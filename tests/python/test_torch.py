"""What torch.distributed.checkpoint loads through the reader, alone and on several ranks."""
import os
import shutil
import socket

import pytest
from conftest import cases, genuine

import shardscope

torch = pytest.importorskip("torch")
dcp = pytest.importorskip("torch.distributed.checkpoint")
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

import shardscope.torch  # noqa: E402
from shardscope import _reads  # noqa: E402

TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
WHOLE = [c for c in cases() if "findings" not in c[2]]


def same(a, b):
    a, b = a.contiguous(), b.contiguous()
    return a.shape == b.shape and a.dtype == b.dtype and (
        a.numel() == 0 or torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8)))


def readable(checkpoint):
    """The tensors that torch can hold, read, by name."""
    wanted = {}
    for key in checkpoint:
        try:
            wanted[key] = checkpoint[key].torch()
        except shardscope.Error:
            continue
    return wanted


def load(state, reader):
    dcp.load(state, storage_reader=reader)


@pytest.mark.parametrize("name, path, expected", WHOLE, ids=[c[0] for c in WHOLE])
def test_load_whole(name, path, expected):
    """Every tensor into plain tensors, which held other values before, without a process group."""
    checkpoint = shardscope.open(path)
    wanted = readable(checkpoint)
    supported = {key: value for key, value in wanted.items() if not value.is_quantized}
    state = {key: torch.empty_like(value) for key, value in supported.items()}
    for value in state.values():
        if value.numel() and value.is_contiguous():
            value.reshape(-1).view(torch.uint8).fill_(1)
    load(state, shardscope.torch.StorageReader(path))
    for key, value in supported.items():
        assert same(state[key], value), key


def test_objects_are_loaded():
    path = genuine("dcp/t2.15.0-standard")
    if TORCH < (2, 6):
        pytest.skip("this torch keeps what dcp.load has read of plain values in a copy of the state dict")
    state = {"step": 0, "lr": 0.0, "history": None}
    load(state, shardscope.torch.StorageReader(path))
    assert state == {"step": 1234, "lr": 0.0003, "history": [1, 2.5, "x"]}
    nested = {"optim": {"param_groups": [{"betas": None}]}}
    load(nested, shardscope.torch.StorageReader(path))
    assert nested["optim"]["param_groups"][0]["betas"] == (0.9, 0.999)


def test_opaque_objects_are_refused():
    path = genuine("dcp/t2.15.0-objects")
    checkpoint = shardscope.open(path)
    opaque = [name for name, value in checkpoint.objects.items() if isinstance(value, shardscope.Opaque)]
    assert opaque
    with pytest.raises(BaseException) as raised:
        load({opaque[0]: None}, shardscope.torch.StorageReader(path))
    assert "which is not made" in str(raised.value) or opaque[0] in str(raised.value)


def test_as_torch_reads():
    """The same state dict through torch's own reader and through ours."""
    path = genuine("dcp/t2.15.0-standard" if TORCH >= (2, 6) else "dcp/t2.3.1-standard")
    checkpoint = shardscope.open(path)
    ours, theirs = ({key: torch.zeros_like(checkpoint[key].torch()) for key in checkpoint} for _ in range(2))
    load(ours, shardscope.torch.StorageReader(path))
    load(theirs, dcp.FileSystemReader(path))
    assert all(same(ours[key], theirs[key]) for key in ours)


def test_prefix_and_strip():
    path = genuine("dcp/t2.15.0-standard")
    value = shardscope.open(path)["model.embed.weight"].torch()
    state = {"net": {"embed": {"weight": torch.zeros_like(value)}}}
    load(state, shardscope.torch.StorageReader(path, strip="model.", prefix="net."))
    assert same(state["net"]["embed"]["weight"], value)


def test_other_dtype_and_strides():
    path = genuine("dcp/t2.15.0-standard")
    value = shardscope.open(path)["model.embed.weight"].torch()
    other = {"model.embed.weight": torch.zeros(value.shape, dtype=torch.float64)}
    load(other, shardscope.torch.StorageReader(path))
    assert torch.equal(other["model.embed.weight"], value.double())
    strided = {"model.embed.weight": torch.zeros(value.shape[::-1]).t()}
    load(strided, shardscope.torch.StorageReader(path))
    assert torch.equal(strided["model.embed.weight"], value)


def other_dtype(value):
    if value.is_complex():
        return torch.complex128
    return torch.float64 if value.is_floating_point() else torch.int64


def convertible(value):
    try:
        return value.to(other_dtype(value)) is not None
    except (RuntimeError, NotImplementedError):
        return False  # torch has no values of this dtype, only bits


@pytest.mark.parametrize("staged", [64, 4096])
@pytest.mark.parametrize("name, path, expected", WHOLE, ids=[c[0] for c in WHOLE])
def test_parts_of_what_is_staged(name, path, expected, staged, monkeypatch):
    """Tensors of another dtype come in parts: rows, parts of a row, several tensors in one."""
    monkeypatch.setattr(_reads, "_STAGED_BYTES", staged)
    wanted = {key: value for key, value in readable(shardscope.open(path)).items()
              if not value.is_quantized and value.numel() * value.element_size() <= 300 * staged and convertible(value)}
    state = {key: torch.zeros(value.shape, dtype=other_dtype(value)) for key, value in wanted.items()}
    calls = []
    load(state, shardscope.torch.StorageReader(path, progress=lambda *call: calls.append(call)))
    for key, value in wanted.items():
        assert torch.equal(state[key], value.to(state[key].dtype)) or value.is_floating_point() and torch.equal(
            state[key].isnan(), value.isnan()), key
    done = [call[1] for call in calls]
    assert done == sorted(done) and all(call[1] <= call[2] == calls[0][2] for call in calls)


# torch wraps what a rank raises in a CheckpointException, which is no Exception.
def test_masters_fill_parameters_of_more_bits(tmp_path):
    path = os.path.join(genuine("deepspeed/trainer_z3_bf16"), "checkpoint-3")
    checkpoint = shardscope.open(path)
    weight = checkpoint["net.0.weight"]
    master = weight.master
    assert weight.dtype == "bfloat16" and master.dtype == "float32" and master.master is None

    def loaded(dtype, **options):
        state = {"net.0.weight": torch.zeros(weight.shape, dtype=dtype)}
        load(state, shardscope.torch.StorageReader(path, **options))
        return state["net.0.weight"]

    assert same(loaded(torch.float32), master.torch())
    assert same(loaded(torch.bfloat16), weight.torch())
    assert same(loaded(torch.bfloat16, master_weights="use"), master.torch().to(torch.bfloat16))
    assert same(loaded(torch.float32, master_weights="ignore"), weight.torch().to(torch.float32))
    # What a recipe or a rename makes has masters, too.
    assert same(loaded(torch.float32, rename=["^other=another"]), master.torch())
    shardscope.convert(path, tmp_path / "out", to="safetensors", weights_only=True, master_weights="use")
    assert same(shardscope.open(tmp_path / "out")["net.0.weight"].torch(), master.torch())


def test_missing_name_and_wrong_shape():
    reader = shardscope.torch.StorageReader(genuine("dcp/t2.15.0-standard"))
    with pytest.raises(BaseException):
        load({"no.such": torch.zeros(2)}, reader)
    if TORCH >= (2, 6):  # before, torch did not compare shapes
        with pytest.raises(BaseException):
            load({"model.embed.weight": torch.zeros(2, 2)}, reader)


def test_checkpoint_torch():
    checkpoint = shardscope.open(genuine("dcp/t2.15.0-standard"))
    calls = []
    state = checkpoint.torch(["model.*", "optim.*"], progress=lambda *call: calls.append(call))
    assert all(same(value, checkpoint[name].torch()) for name, value in state.items())
    given = torch.zeros(6, 7).t()
    assert checkpoint.torch("model.embed.weight", out={"model.embed.weight": given})["model.embed.weight"] is given
    assert torch.equal(given, checkpoint["model.embed.weight"].torch())
    out = torch.zeros(7)
    assert checkpoint["model.embed.weight"].torch((slice(None), 2), out=out) is out
    assert torch.equal(out, given[:, 2])
    assert torch.equal(checkpoint["model.embed.weight"].torch((3, slice(None, None, -2))), given[3].flip(0)[::2])
    with pytest.raises(shardscope.Error):
        checkpoint["model.embed.weight"].torch(out=torch.zeros(3))


@pytest.mark.parametrize("name, path, expected", WHOLE, ids=[c[0] for c in WHOLE])
def test_mapped_is_as_read(name, path, expected):
    checkpoint = shardscope.open(path)
    wanted = readable(checkpoint)
    if wanted:
        mapped = checkpoint.torch(list(wanted), mmap=True)
        assert all(same(mapped[key], value) for key, value in wanted.items())


def test_mapped_tensors_are_private(tmp_path):
    source = genuine("safetensors/hf-sharded")
    copy = tmp_path / "copy"
    shutil.copytree(source, copy, copy_function=shutil.copyfile)
    before = {file: file.read_bytes() for file in copy.iterdir()}
    state = shardscope.open(copy).torch(mmap=True)
    read = shardscope.open(source).torch()
    with open("/proc/self/maps", encoding="utf-8") as f:
        assert str(copy) in f.read()
    for value in state.values():
        value.add_(1)
    assert all(file.read_bytes() == data for file, data in before.items())
    assert all(torch.equal(state[key], value + 1) for key, value in read.items())
    state = shardscope.open(copy).torch(mmap=True)
    shutil.rmtree(copy)
    assert all(same(state[key], value) for key, value in read.items())


@needs_gpu
def test_pinned():
    checkpoint = shardscope.open(genuine("dcp/t2.15.0-standard"))
    value = checkpoint["model.embed.weight"].torch(pin_memory=True)
    assert value.is_pinned() and same(value, checkpoint["model.embed.weight"].torch())
    assert all(v.is_pinned() for v in checkpoint.torch("model.*", pin_memory=True).values() if v.numel())


def reversed_strides(shape, **options):
    return torch.empty(shape[::-1], **options).permute(tuple(reversed(range(len(shape)))))


@needs_gpu
@pytest.mark.parametrize("staged", [256, _reads._STAGED_BYTES])
@pytest.mark.parametrize("name, path, expected", WHOLE, ids=[c[0] for c in WHOLE])
def test_on_a_gpu(name, path, expected, staged, monkeypatch):
    """As on the processor: made there, filled there, into other strides, loaded by torch, and slices."""
    checkpoint = shardscope.open(path)
    wanted = {key: value for key, value in readable(checkpoint).items() if not value.is_quantized}
    monkeypatch.setattr(_reads, "_STAGED_BYTES", staged)
    made = checkpoint.torch(list(wanted), device="cuda") if wanted else {}
    given = {key: reversed_strides(value.shape, dtype=value.dtype, device="cuda") for key, value in wanted.items()}
    if wanted:
        checkpoint.torch(list(wanted), out=given)
    state = {key: torch.empty(value.shape, dtype=value.dtype, device="cuda") for key, value in wanted.items()}
    load(state, shardscope.torch.StorageReader(path))
    for key, value in wanted.items():
        for found in (made[key], given[key], state[key]):
            assert found.device.type == "cuda" and same(found.cpu(), value), key
        if value.ndim and value.shape[0] > 2 and convertible(value):
            for index in (1, slice(1, None, 2), slice(None, None, -1)):
                region = (index, Ellipsis)
                wanted_here = checkpoint[key].torch(region)
                out = torch.empty(wanted_here.shape, dtype=value.dtype, device="cuda")
                for found in (checkpoint[key].torch(region, device="cuda"), checkpoint[key].torch(region, out=out)):
                    assert found.device.type == "cuda" and same(found.cpu(), wanted_here), key


@needs_gpu
def test_devices_by_name_and_number():
    for device in ("cuda", 0):
        made = shardscope.open(genuine("dcp/t2.15.0-standard")).torch("model.embed.weight", device=device)
        assert made["model.embed.weight"].device.type == "cuda"
        with shardscope.safetensors_open(genuine("dcp/t2.15.0-standard"), framework="pt", device=device) as f:
            value = f.get_tensor("model.embed.weight")
            assert value.device.type == "cuda" and same(f.get_slice("model.embed.weight")[2:4].cpu(), value[2:4].cpu())


# ------------------------------------------------------------------ several ranks

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def on_ranks(work, world, *arguments):
    # Forked, since the imports take longer than all else that a rank does.
    mp.start_processes(rank_main, args=(work, world, free_port(), arguments), nprocs=world, start_method="fork")


def rank_main(rank, work, world, port, arguments):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world),
                      GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    work(rank, world, *arguments)
    dist.barrier()
    # The group ends with the process: torch 2.3 can hang in destroy_process_group(), which holds the lock of the
    # interpreter while it waits for a thread that needs it.


def placements_of():
    try:
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh
    except ImportError:
        from torch.distributed._tensor import Replicate, Shard, distribute_tensor, init_device_mesh
    return Replicate, Shard, distribute_tensor, init_device_mesh


def load_dtensors(rank, world, path):
    Replicate, Shard, distribute_tensor, init_device_mesh = placements_of()
    mesh = init_device_mesh("cpu", (world,))
    checkpoint = shardscope.open(path)
    state, wanted = {}, {}
    for i, name in enumerate(checkpoint):
        try:
            value = checkpoint[name].torch()
        except shardscope.Error:
            continue
        if value.dtype not in (torch.float32, torch.bfloat16, torch.float16):
            continue
        placement = Replicate() if value.dim() == 0 else Shard(i % value.dim())
        state[name] = distribute_tensor(torch.zeros_like(value), mesh, [placement])
        wanted[name] = distribute_tensor(value, mesh, [placement])
    assert state
    dcp.load(state, storage_reader=shardscope.torch.StorageReader(path))
    for name, value in wanted.items():
        assert same(state[name].to_local(), value.to_local()), (rank, name)


@pytest.mark.parametrize("name", ["dcp/t2.15.0-fsdp2-tp", "deepspeed/z3_bf16_w2", "megatron/m0.16.1-gpt-tp2-llama",
                                  "safetensors/hf-sharded", "torch_checkpointing/dp2tp2-torch"])
def test_dtensors_on_two_ranks(name):
    on_ranks(load_dtensors, 2, next(path for case, path, _ in WHOLE if case == name))


def load_fsdp2(rank, world, path, names):
    from torch.distributed._composable.fsdp import fully_shard
    from torch.distributed.device_mesh import init_device_mesh

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for i, name in enumerate(names):
                self.register_parameter(f"p{i}", torch.nn.Parameter(torch.zeros(shardscope.open(path)[name].shape)))

    model = Model()
    fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
    state = {name: model.state_dict()[f"p{i}"] for i, name in enumerate(names)}
    dcp.load(state, storage_reader=shardscope.torch.StorageReader(path))
    checkpoint = shardscope.open(path)
    for i, name in enumerate(names):
        assert torch.equal(model.state_dict()[f"p{i}"].full_tensor(), checkpoint[name].torch()), name


def test_fsdp2_resumes_from_deepspeed():
    pytest.importorskip("torch.distributed._composable.fsdp")
    if TORCH < (2, 6):
        pytest.skip("FSDP2 of this torch needs a GPU")
    path = next(path for case, path, _ in WHOLE if case == "deepspeed/z3_bf16_w2")
    checkpoint = shardscope.open(path)
    names = [n for n in checkpoint if checkpoint[n].dtype == "float32" and checkpoint[n].ndim == 2][:4]
    assert names
    on_ranks(load_fsdp2, 2, path, names)


def test_as_tensor_reads_once():
    """Through DLPack, or in blocks of rows where torch does not ask for that."""
    checkpoint = shardscope.open(genuine("dcp/t2.15.0-standard"))
    tensor = checkpoint["model.embed.weight"]
    wanted = tensor.torch()
    for made in (torch.from_dlpack(tensor), torch.as_tensor(tensor), torch.utils.dlpack.from_dlpack(tensor)):
        assert made.dtype == wanted.dtype and torch.equal(made, wanted)
    for name, tensor in checkpoint.items():
        if tensor.dtype == "bfloat16":
            assert torch.equal(torch.from_dlpack(tensor), tensor.torch())


def test_lists_and_masks():
    tensor = shardscope.open(genuine("dcp/t2.15.0-standard"))["model.embed.weight"]
    whole = tensor.torch()
    mask = torch.arange(7) % 2 == 0
    for key in ([0, 2], torch.tensor([[1, -1], [3, 0]]), (slice(None), [5, 0]), mask, (mask, 1), (slice(None, None, 2), [1, 1]),
                whole > 0, (torch.tensor(3), slice(1, 4))):
        assert torch.equal(tensor.torch(key), whole[key]) and torch.equal(torch.as_tensor(tensor[key]), whole[key])
    assert torch.equal(tensor.torch((slice(None, None, -1), [5, 0])), whole.flip(0)[:, [5, 0]])
    out = torch.zeros(2, 6)
    assert tensor.torch([4, 1], out=out) is out and torch.equal(out, whole[[4, 1]])
    with pytest.raises(ValueError):
        tensor.torch([4, 1, 1], out=out)


def test_weights_only():
    checkpoint = shardscope.open(genuine("deepspeed/z1_bf16_w2"))
    weights = checkpoint.torch(weights_only=True)
    assert list(weights) == checkpoint.select(weights_only=True)
    assert set(weights) == {name for name, tensor in checkpoint.items() if tensor.role in ("parameter", "buffer")} < set(checkpoint)


class Rows(torch.utils.data.Dataset):
    def __init__(self, tensor):
        self.tensor = tensor

    def __len__(self):
        return len(self.tensor)

    def __getitem__(self, i):
        return self.tensor.torch(i)


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_workers_of_a_loader(how):
    tensor = shardscope.open(genuine("dcp/t2.15.0-standard"))["model.embed.weight"]
    loader = torch.utils.data.DataLoader(Rows(tensor), batch_size=2, num_workers=2, multiprocessing_context=how)
    assert torch.equal(torch.cat(list(loader)), tensor.torch())

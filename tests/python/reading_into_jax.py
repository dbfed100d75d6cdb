"""Arrays of jax by sharding, and bars of tqdm, with jax and tqdm themselves: on eight devices that are this processor."""
import io
import os
import sys
import tempfile

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import contextlib

import jax
import numpy
import torch
import tqdm.auto
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import shardscope
from pages import block_with

mesh = Mesh(numpy.array(jax.devices()).reshape(4, 2), ("x", "y"))


def sharded(*axes):
    return NamedSharding(mesh, PartitionSpec(*axes))


class Counted:
    """A tensor, and the bytes that are read of it."""

    def __init__(self, tensor):
        self.tensor, self.read = tensor, 0

    def __getattr__(self, name):
        return getattr(self.tensor, name)

    def numpy(self, key=Ellipsis, threads=0):
        array = self.tensor.numpy(key, threads)
        self.read += array.nbytes
        return array


def check_shardings(checkpoint):
    from shardscope._jax import read

    for name in ("w", "half"):
        tensor, whole = checkpoint[name], checkpoint[name].numpy()
        for sharding in (sharded("x"), sharded("x", "y"), sharded(None, "y"), sharded(("y", "x")), sharded()):
            counted = Counted(tensor)
            array = read(counted, sharding, 0)
            assert array.sharding == sharding and array.dtype == whole.dtype and counted.read == tensor.nbytes, (name, counted.read)
            assert (numpy.asarray(array) == whole).all()
            for shard in array.addressable_shards:
                assert (numpy.asarray(shard.data) == whole[shard.index]).all()
    # Of the devices of one half, that half alone is read.
    counted = Counted(checkpoint["w"])
    half = NamedSharding(Mesh(numpy.array(jax.devices()[:4]), ("x",)), PartitionSpec("x"))
    read(counted, half, 0)
    assert counted.read == counted.nbytes


def check_checkpoint(checkpoint):
    arrays = checkpoint.jax({"w": sharded("x", "y")}, patterns=["w", "half"])
    assert arrays["w"].sharding == sharded("x", "y") and len(arrays["half"].devices()) == 1 and set(arrays) == {"half", "w"}
    assert checkpoint.jax(lambda tensor: sharded("x") if tensor.ndim else sharded(), "w")["w"].sharding == sharded("x")
    assert checkpoint.jax(sharded(), "w")["w"].is_fully_replicated
    try:
        checkpoint["step"].jax()
        sys.exit("an int64 became an int32 without a word")
    except ValueError as error:
        assert "jax_enable_x64" in str(error)
    jax.config.update("jax_enable_x64", True)
    assert checkpoint["step"].jax().dtype == "int64"


def check_page(place):
    """The page's own text."""
    torch.save({"model": {"embed.weight": torch.arange(32.0).reshape(8, 4), "norm.weight": torch.ones(4)}}, f"{place}/model.pt")
    names = {"ckpt": shardscope.open(f"{place}/model.pt")}
    exec(block_with("docs/python.md", "jax.make_mesh"), names)
    assert len(names["w"].sharding.device_set) == 8 and names["w"].addressable_shards[0].data.shape == (4, 4)
    assert set(names["params"]) == {"model.embed.weight", "model.norm.weight"} and names["params"]["model.norm.weight"].is_fully_replicated


def check_bars(path, out):
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        shardscope.convert(path, out, to="dcp", progress="tqdm")
    assert "MB/s" in said.getvalue() or "B/s" in said.getvalue() or "B [" in said.getvalue(), said.getvalue()
    assert not tqdm.auto.tqdm._instances, "the bar did not end"


with tempfile.TemporaryDirectory() as place:
    torch.save({"w": torch.arange(64 * 32, dtype=torch.float32).reshape(64, 32), "half": torch.randn(8, 16).bfloat16(),
                "step": torch.tensor(7)}, f"{place}/a.pt")
    check_page(place)
    with shardscope.open(f"{place}/a.pt") as opened:
        check_shardings(opened)
        check_checkpoint(opened)
    check_bars(f"{place}/a.pt", f"{place}/out")
print("jax has each device's part, and tqdm its bar")

"""safetensors_open against safetensors.safe_open, and over other formats."""
import json

import pytest
from conftest import DATA, genuine

import shardscope

safetensors = pytest.importorskip("safetensors")
torch = pytest.importorskip("torch")


def files():
    for path in sorted((DATA / "genuine" / "safetensors").glob("*/ckpt/*.safetensors")):
        try:
            with safetensors.safe_open(path, framework="pt") as f:
                for key in f.keys():
                    f.get_tensor(key)
        except Exception:
            continue  # a dtype that this torch lacks
        yield path


FILES = list(files())


def same(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and (
        a.numel() == 0 or torch.equal(a.contiguous().reshape(-1).view(torch.uint8),
                                      b.contiguous().reshape(-1).view(torch.uint8)))


@pytest.mark.parametrize("path", FILES, ids=[f"{p.parent.parent.name}/{p.name}" for p in FILES])
def test_as_safe_open(path):
    with safetensors.safe_open(path, framework="pt") as theirs, shardscope.safetensors_open(path, framework="pt") as ours:
        assert list(ours.keys()) == list(theirs.keys())
        assert ours.metadata() == {"format": "pt", **(theirs.metadata() or {})}
        if hasattr(theirs, "offset_keys"):
            assert list(ours.offset_keys()) == list(theirs.offset_keys())
        for key in theirs.keys():
            assert same(ours.get_tensor(key), theirs.get_tensor(key))
            a, b = ours.get_slice(key), theirs.get_slice(key)
            assert a.get_shape() == b.get_shape() and a.get_dtype() == b.get_dtype()
            # safetensors 0.8 cannot slice F4.
            if a.get_dtype() != "F4" and a.get_shape() and a.get_shape()[0] > 1:
                assert same(a[1:], b[1:]) and same(a[:1, ...], b[:1, ...])


def test_over_another_format():
    with shardscope.safetensors_open(genuine("dcp/t2.15.0-standard"), framework="np", device="cpu") as f:
        assert f.get_slice("model.embed.weight")[1:3, 0].shape == (2,)
        with pytest.raises(shardscope.Error):
            f.get_tensor("no.such")


def test_lists_the_model_alone():
    """Of a checkpoint with optimizer state, unless it is asked for; by name all of it is there."""
    checkpoint = shardscope.open(genuine("dcp/t2.15.0-standard"))
    optimizer = [name for name, tensor in checkpoint.items() if tensor.role == "optimizer"]
    with shardscope.safetensors_open(checkpoint.path) as f:
        assert optimizer and f.keys() == sorted(checkpoint.select(weights_only=True)) == sorted(f.offset_keys())
        assert f.get_tensor(optimizer[0]).shape == checkpoint[optimizer[0]].shape
    with shardscope.safetensors_open(checkpoint.path, weights_only=False) as f:
        assert f.keys() == sorted(checkpoint)
    with pytest.raises(ValueError):
        f.get_tensor(optimizer[0])  # it is closed

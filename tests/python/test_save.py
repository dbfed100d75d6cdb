"""shardscope.save: a state dict in memory, written in other formats and read by their own frameworks."""
import collections
import os

import numpy
import pytest
import torch
import torch.distributed.checkpoint as dcp

import shardscope


def state():
    generator = torch.Generator().manual_seed(7)
    embed = torch.randn((8, 6), generator=generator)
    base = torch.arange(40, dtype=torch.int64).reshape(5, 8)
    return {
        "model": collections.OrderedDict({
            "embed.weight": embed,
            "head.weight": embed,                       # tied
            "norm.weight": torch.randn(6, generator=generator).to(torch.bfloat16),
            "slice": base[1:4, ::2],                    # a view, with strides
            "none": torch.zeros((0, 3)),
        }),
        "optimizer": {"state": {0: {"exp_avg": torch.ones(8, 6), "step": torch.tensor(3.0)}}, "param_groups": [{"lr": 0.1, "params": [0]}]},
        "from numpy": numpy.arange(6, dtype=numpy.float64),
        "step": 12,
        "name": "a run",
    }


def assert_same(found, wanted):
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    assert torch.equal(found, wanted)


def test_torch_save(tmp_path):
    report = shardscope.save(state(), tmp_path / "state.pt", to="torch")
    assert report["schema"] == "shardscope.report/1" and report["verified"]
    assert report["plan"]["source"]["format"] == "torch"
    loaded = torch.load(tmp_path / "state.pt", weights_only=False)
    for name, tensor in state()["model"].items():
        assert_same(loaded["model"][name], tensor)
    assert_same(loaded["from numpy"], torch.arange(6, dtype=torch.float64))
    assert (loaded["step"], loaded["name"]) == (12, "a run")
    assert loaded["optimizer"]["param_groups"] == [{"lr": 0.1, "params": [0]}]


def test_dcp_on_a_mesh(tmp_path):
    shardscope.save(state(), tmp_path / "dcp", to="dcp", mesh="tp=2", shard=["*embed.weight:tp=0"])
    wanted = {"model": {name: torch.zeros_like(tensor).contiguous() for name, tensor in state()["model"].items()}}
    dcp.load(wanted, checkpoint_id=str(tmp_path / "dcp"))
    for name, tensor in state()["model"].items():
        assert_same(wanted["model"][name], tensor)
    assert len(shardscope.open(tmp_path / "dcp")["model.embed.weight"].chunks) == 2


def test_safetensors_and_weights_only(tmp_path):
    shardscope.save(state(), tmp_path / "model", weights_only=True)
    opened = shardscope.open(tmp_path / "model")
    assert not [name for name in opened if name.startswith("optimizer")]
    assert_same(opened["model.norm.weight"].torch(), state()["model"]["norm.weight"])


def test_dry_run_writes_nothing(tmp_path):
    plan = shardscope.save(state(), tmp_path / "out", dry_run=True)
    assert plan["schema"] == "shardscope.plan/1" and not os.listdir(tmp_path)


def test_many_and_large_pieces(tmp_path):
    wanted = {f"layer.{i}": torch.full((3, 1 << (i % 16)), float(i)) for i in range(2000)}
    shardscope.save(wanted, tmp_path / "model")
    opened = shardscope.open(tmp_path / "model")
    assert opened.validate(level="values").verdict == "safe"
    for name in ("layer.0", "layer.1999", "layer.1023"):
        assert_same(opened[name].torch(), wanted[name])


@pytest.mark.parametrize("options", [{"on": "local:2"}, {"part": "1/2"}, {"resume": True}])
def test_one_process_alone(tmp_path, options):
    with pytest.raises(shardscope.Error) as error:
        shardscope.save(state(), tmp_path / "out", **options)
    assert error.value.code == "usage" and "torch.save" in error.value.hint
    assert not os.listdir(tmp_path)


def test_a_destination_that_is_there(tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(FileExistsError):
        shardscope.save(state(), tmp_path / "out")

"""Checkpoints of another host, which is an sshd of this machine with keys of its own."""
import os
import pathlib
import signal
import subprocess

import pytest
from conftest import genuine

import shardscope

HOST = pathlib.Path(__file__).resolve().parent.parent / "cluster" / "ssh-host"


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    work = tmp_path_factory.mktemp("ssh")
    started = subprocess.run([HOST, work], capture_output=True, text=True)
    if started.returncode == 77:
        pytest.skip(started.stdout.strip())
    assert started.returncode == 0, started.stderr
    before = os.environ.get("SHARDSCOPE_SSH")
    os.environ["SHARDSCOPE_SSH"] = str(work / "ssh")
    yield "ssh://node1"
    os.kill(int((work / "sshd.pid").read_text()), signal.SIGTERM)
    if before is None:
        del os.environ["SHARDSCOPE_SSH"]
    else:
        os.environ["SHARDSCOPE_SSH"] = before


@pytest.mark.parametrize("case", ["dcp/t2.15.0-standard", "deepspeed/z1_fp32_w3", "safetensors/hf-sharded"])
def test_as_here(there, case):
    path = genuine(case)
    here, remote = shardscope.open(path), shardscope.open(there + path)
    assert remote.path == there + path and remote.format == here.format
    assert list(remote) == list(here)
    for name in here:
        assert (remote[name].shape, remote[name].dtype) == (here[name].shape, here[name].dtype)
        assert remote[name].raw() == here[name].raw(), name
    assert set(remote.objects) == set(here.objects)
    assert remote.validate("values").verdict == here.validate("values").verdict
    assert "<svg" in remote._repr_html_()


def test_slices(there):
    numpy = pytest.importorskip("numpy")
    path = genuine("dcp/t2.15.0-standard")
    part = shardscope.open(there + path)["model.embed.weight"][1:5, ::-2]
    assert numpy.array_equal(part, shardscope.open(path)["model.embed.weight"][1:5, ::-2])


def test_errors(there):
    with pytest.raises(shardscope.Error) as raised:
        shardscope.open(there + "/no/such")
    assert raised.value.code == "not-found" and raised.value.file == there + "/no/such"
    with pytest.raises(shardscope.Error) as raised:
        shardscope.open("ssh://nowhere/data")
    assert "nowhere" in str(raised.value)

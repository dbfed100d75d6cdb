"""What somebody new wants to do in a minute: each task is one line, as the pages have it, and the first try works.

A command is typed as it stands in *Which option do I need?* (docs/faq.md), in a directory that holds nothing but the checkpoint; only the
capitals are replaced by names.
"""
import hashlib
import json
import math
import os
import pathlib
import re
import shutil
import subprocess

import documents_worlds
import pytest
import shardscope
import torch
from conftest import genuine
from safetensors.torch import load_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
ZERO = "deepspeed/z3_bf16_w2"


def line_of(want, span=0):
    """A command of the table, by the beginning of what one wants."""
    text = (ROOT / "docs/faq.md").read_text(encoding="utf-8").split("## Which option do I need?")[1].split("\n## ")[0]
    rows = [row for row in re.findall(r"^\| (.+?) \| (.+) \|$", text, re.MULTILINE) if row[0].startswith(want)]
    assert len(rows) == 1, f"docs/faq.md has {len(rows)} rows for {want!r}"
    return re.findall(r"`([^`]+)`", rows[0][1])[span]


def typed(directory, line, **names):
    for name, value in names.items():
        assert name in line, line
        line = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", value, line)
    environment = {**os.environ, "PATH": f"{pathlib.Path(documents_worlds.PROGRAM).parent}:{os.environ['PATH']}", "HOME": str(directory / "home")}
    environment.pop("XDG_STATE_HOME", None)
    return subprocess.run(["bash", "-c", f"shardscope {line}"], cwd=directory, env=environment, capture_output=True, text=True)


def digests(tensors):
    return {name: hashlib.sha256(t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest() for name, t in tensors.items()}


def masters():
    """What training had in memory, by the name of the weight."""
    expected = json.loads(pathlib.Path(genuine(ZERO)).with_name("expected.json").read_text(encoding="utf-8"))["tensors"]
    found = {m.group(1): t["sha256"] for name, t in expected.items() if (m := re.fullmatch(r"optimizer\.state\.(.+)\.fp32", name))}
    assert len(found) > 3
    return found


def test_is_it_whole(tmp_path):
    documents_worlds.save_step(tmp_path / "step")
    line = line_of("to know whether it is whole") + " " + line_of("to know whether it is whole", 1)
    done = typed(tmp_path, line, CHECKPOINT="step")
    assert done.returncode == 0 and "verdict: safe" in done.stdout, done
    os.truncate(tmp_path / "step/__0_0.distcp", 1000)
    done = typed(tmp_path, line, CHECKPOINT="step")
    assert done.returncode == 1 and "verdict: unsafe" in done.stdout and "__0_0.distcp" in done.stdout, done


def test_to_hugging_face(tmp_path):
    documents_worlds.save_dcp({"model." + name: t for name, t in documents_worlds.model_state().items()}, tmp_path / "step")
    (tmp_path / "cfg").mkdir()
    (tmp_path / "cfg/config.json").write_text(documents_worlds.CONFIG)
    done = typed(tmp_path, line_of("a model that transformers loads"), SRC="step", DST="out", DIR="cfg")
    assert done.returncode == 0, done
    assert (tmp_path / "out/config.json").exists()
    assert digests(load_file(tmp_path / "out/model.safetensors")) == digests(documents_worlds.model_state())


def test_one_file_of_fp32(tmp_path):
    shutil.copytree(genuine(ZERO), tmp_path / "zero3")
    done = typed(tmp_path, line_of("fp32 weights of a ZeRO"), SRC="zero3")
    assert done.returncode == 0, done
    written = load_file(tmp_path / "out.safetensors")
    assert all(t.dtype == torch.float32 for t in written.values() if t.is_floating_point())
    assert masters().items() <= digests(written).items()


def test_resume_in_fsdp2(tmp_path, monkeypatch):
    """The line of the page that loads fills fp32 weights with the masters."""
    shutil.copytree(genuine(ZERO), tmp_path / "run")
    line = 'dcp.load(state, storage_reader=shardscope.torch.StorageReader("global_step100"))'
    assert line in (ROOT / "docs/python.md").read_text(encoding="utf-8")
    next((tmp_path / "run").glob("global_step*")).rename(tmp_path / "global_step100")
    monkeypatch.chdir(tmp_path)
    import torch.distributed.checkpoint as dcp

    import shardscope.torch
    state = {name: torch.zeros(tensor.shape) for name, tensor in shardscope.open("global_step100").items() if name in masters()}
    exec(line, {"dcp": dcp, "shardscope": shardscope, "state": state})  # the page's own text
    assert digests(state) == masters()


def test_which_tensor_differs(tmp_path):
    state = documents_worlds.model_state()
    documents_worlds.save_dcp(state, tmp_path / "one")
    state["model.norm.weight"] = state["model.norm.weight"] + 0.5
    documents_worlds.save_dcp(state, tmp_path / "two")
    done = typed(tmp_path, line_of("to know which tensors differ"), A="one", B="two")
    assert done.returncode == 1, done
    # Which, and by how much.
    assert [line for line in done.stdout.splitlines() if "model.norm.weight" in line and "0.5" in line], done.stdout
    assert "embed_tokens" not in done.stdout


def test_what_a_rank_holds(tmp_path):
    shutil.copytree(genuine("dcp/t2.15.0-fsdp2-adam"), tmp_path / "step")
    line = line_of("to know what each rank holds", 1)
    done = typed(tmp_path, line.replace("17", "1"), CHECKPOINT="step")
    assert done.returncode == 0, done
    # The sum is that of the chunks that the rank wrote.
    held = sum(t.nbytes // math.prod(t.shape) * math.prod(chunk["lengths"])
               for t in shardscope.open(tmp_path / "step").values() for chunk in t.chunks if chunk["rank"] == 1)
    assert re.search(rf"\b{held:,} B\b", done.stdout), (held, done.stdout)
    done = typed(tmp_path, line, CHECKPOINT="step")
    assert done.returncode == 2 and re.search(r"ranks? (are )?0 to \d", done.stderr), done


@pytest.mark.parametrize("span", [0, 1], ids=["latest", "validate"])
def test_gate(tmp_path, span):
    documents_worlds.save_run(tmp_path / "runs")
    line = line_of("a gate in a launch script", span)
    if span == 0:
        done = typed(tmp_path, line, RUN="runs")
        assert (done.returncode, done.stdout) == (0, "runs/iter_0000020\n"), done
        shutil.rmtree(tmp_path / "runs/iter_0000020")
        shutil.rmtree(tmp_path / "runs/iter_0000010")
        assert typed(tmp_path, line, RUN="runs").returncode == 1
    else:
        assert typed(tmp_path, line, CHECKPOINT="runs/iter_0000020").returncode == 0
        assert typed(tmp_path, line, CHECKPOINT="runs/iter_0000030").returncode != 0

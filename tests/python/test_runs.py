"""Runs and the other documents: those of the command line."""
import json
import pathlib
import shutil
import subprocess

import pytest
from conftest import genuine

import shardscope

STANDARD = genuine("dcp/t2.15.0-standard")
DAMAGED = genuine("dcp/t2.15.0-damaged-gap")


def documents(program, *words):
    return json.loads(subprocess.run([program, *words, "--json"], capture_output=True, text=True).stdout)


@pytest.fixture
def run(tmp_path):
    """Two whole steps, and a newer one that is damaged."""
    place = tmp_path / "run"
    for name, source in (("step-10", STANDARD), ("step-20", STANDARD), ("step-30", DAMAGED)):
        shutil.copytree(source, place / name, copy_function=shutil.copyfile)
    return str(place)


def same(document, other):
    """Equal, but for what depends on which of them judged first."""
    def plain(value):
        if isinstance(value, dict):
            return {key: plain(entry) for key, entry in value.items() if key != "unchanged"}
        return [plain(entry) for entry in value] if isinstance(value, list) else value
    return plain(document) == plain(other)


def test_latest(program, run):
    assert shardscope.latest(run) == shardscope.latest(pathlib.Path(run), good=True) == f"{run}/step-20"
    assert shardscope.latest(run, good=False) == f"{run}/step-30"
    found = shardscope.run(run).latest()
    assert found == documents(program, "latest", run, "--good", "--no-accepted")
    assert [skipped["name"] for skipped in found["skipped"]] == ["step-30"]
    (pathlib.Path(run) / "none").mkdir()
    assert shardscope.latest(f"{run}/none") is None
    for wrong in ({"level": "deep"}, {"no_such": 1}):
        with pytest.raises(shardscope.Error) as raised:
            shardscope.latest(run, **wrong)
        assert raised.value.code == "usage"


def test_run(program, run):
    opened = shardscope.run(run)
    assert same(opened.document, documents(program, "info", run, "--no-accepted"))
    assert [step.name for step in opened] == ["step-30", "step-20", "step-10"] and len(opened) == 3
    assert opened[1].step == 20 and opened.tracked is None
    assert set(opened[1].open()) == set(shardscope.open(opened[1]))
    judged = opened.validate()
    assert not judged and judged.verdict == "unsafe" and judged.newest_whole.path == f"{run}/step-20"
    assert [step.verdict for step in judged.steps] == ["unsafe", "safe", "safe"]
    assert {finding.step for finding in judged.findings if finding.severity == "error"} == {"step-30"}
    assert "step-30" not in judged._repr_html_() and "coverage.gap" in judged._repr_html_()
    assert same(judged.document, documents(program, "validate", run, "--no-accepted"))
    assert same(shardscope.validate(run).document, judged.document)
    pathlib.Path(run, "latest").write_text("step-10")
    assert shardscope.run(run).tracked.name == "step-10"
    with pytest.raises(shardscope.Error) as raised:
        shardscope.run(STANDARD)
    assert raised.value.code == "not-found"


def test_ready(program, run):
    card = shardscope.ready(run)
    assert card == shardscope.run(run).ready() == documents(program, "ready", run, "--no-accepted")
    step = shardscope.open(f"{run}/step-10")
    assert step.ready() == shardscope.ready(f"{run}/step-10") == documents(program, "ready", f"{run}/step-10")


def test_digest_index_extract(program, tmp_path):
    for algorithm in ("tile", "sha256"):
        assert shardscope.digest(STANDARD, "model.*", algorithm) == documents(
            program, "digest", STANDARD, "model.*", "--algorithm", algorithm)
    alone = shardscope.digest(STANDARD)
    assert shardscope.digest(STANDARD, on="local:2") == alone == shardscope.open(STANDARD).digest()
    written = shardscope.index(STANDARD, tmp_path / "a.ssidx")
    assert {**written, "file": None} == {**documents(program, "index", STANDARD, "-o", str(tmp_path / "b.ssidx")), "file": None}
    assert list(shardscope.open(tmp_path / "a.ssidx")) == list(shardscope.open(STANDARD))
    for ending in ("npy", "safetensors", "bin"):
        ours, theirs = tmp_path / f"ours.{ending}", tmp_path / f"theirs.{ending}"
        said = shardscope.extract(STANDARD, "model.embed.weight", ours)
        other = documents(program, "extract", STANDARD, "model.embed.weight", str(theirs))
        assert {**said, "file": None} == {**other, "file": None} and ours.read_bytes() == theirs.read_bytes()
        with pytest.raises(shardscope.Error) as raised:
            shardscope.extract(STANDARD, "model.embed.weight", ours)
        assert raised.value.code == "exists"
        shardscope.extract(STANDARD, "model.embed.weight", ours, overwrite=True)
    with pytest.raises(shardscope.Error):
        shardscope.digest(STANDARD, algorithm="md5")


def test_formats_and_recipes(program):
    assert shardscope.formats() == documents(program, "formats")
    assert shardscope.recipes() == documents(program, "recipes")


def test_options_for_opening_reach_what_is_opened():
    """Of functions that open by themselves."""
    assert shardscope.validate(STANDARD, format="dcp")
    for function in (shardscope.validate, shardscope.ready, shardscope.digest):
        with pytest.raises(shardscope.Error):
            function(STANDARD, format="deepspeed")

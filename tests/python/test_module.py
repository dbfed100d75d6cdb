"""Verbs, errors, threads, signals and processes."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading

import pytest
from conftest import DATA, genuine

import shardscope

RECIPE: list = []  # the arguments that the checkpoint holds are all that the recipe needs
STANDARD = genuine("dcp/t2.15.0-standard")


def documents(program, *words):
    return json.loads(subprocess.run([program, *words, "--json"], capture_output=True, text=True).stdout)


def python(code, **environment):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env={**os.environ, **environment}, timeout=300)


def test_import_is_light():
    run = python("import sys, shardscope; print([m for m in ('torch', 'numpy', 'json') if m in sys.modules])")
    assert run.stdout.strip() == "[]", run


def test_mapping():
    checkpoint = shardscope.open(pathlib.Path(STANDARD))
    names = list(checkpoint)
    assert len(checkpoint) == len(names) == len(checkpoint.keys())
    assert names[0] in checkpoint and "no.such" not in checkpoint and 3 not in checkpoint
    with pytest.raises(KeyError):
        checkpoint["no.such"]
    tensor = checkpoint["model.embed.weight"]
    assert (tensor.shape, tensor.dtype, tensor.ndim, tensor.size, tensor.nbytes, len(tensor)) == (
        (7, 6), "float32", 2, 42, 168, 7)
    assert tensor.path == ("model", "embed.weight") or tensor.path[0] == "model"
    assert tensor.ranks == [0, 1, 2, 3]
    assert [(c["offsets"], c["lengths"]) for c in tensor.chunks][0] == ([0, 0], [2, 6])
    for wrong in ((0, 0, 0), (Ellipsis, Ellipsis), 7, -8, None):
        with pytest.raises(IndexError):
            tensor[wrong]
    for wrong in ("a", True, (False, 1), 1.5, {}, ["a"], [0.5]):  # NumPy takes a bool as a mask, not as a number
        with pytest.raises(TypeError) as raised:
            tensor[wrong]
        assert isinstance(raised.value, shardscope.Error), wrong


def test_documents_are_those_of_the_program(program):
    checkpoint = shardscope.open(STANDARD)
    assert checkpoint.info() == documents(program, "info", STANDARD)
    assert checkpoint.validate("values").document == documents(program, "validate", STANDARD, "--level", "values")
    other = genuine("dcp/t2.15.0-no-dist")
    assert shardscope.diff(STANDARD, other) == documents(program, "diff", STANDARD, other)


def test_validation():
    damaged = genuine("dcp/t2.15.0-damaged-gap")
    report = shardscope.validate(damaged)
    assert report.verdict == "unsafe" and not report
    assert any(f.rule == "coverage.gap" and f.severity == "error" and f.count for f in report.findings)
    assert report.to_html().startswith("<!doctype html>") or "<html" in report.to_html()
    assert "coverage.gap" in report._repr_html_()
    assert shardscope.validate(STANDARD, level="metadata", expect=STANDARD)
    with pytest.raises(shardscope.Error) as raised:
        shardscope.validate(STANDARD, level="deep")
    assert raised.value.code == "usage"


def test_validation_by_workers(tmp_path):
    damaged = genuine("dcp/t2.15.0-damaged-nan-block")
    alone = shardscope.validate(damaged, level="values").document
    assert alone["findings"]
    assert shardscope.validate(damaged, level="values", on="local:2").document == alone
    records = tmp_path / "records"
    checkpoint = shardscope.open(damaged, format="dcp")
    assert checkpoint.validate(level="values", on="local:2", records=records).document == alone
    assert not records.exists()
    for wrong in ({"on": "ranks:2"}, {"on": "ssh:node7"}, {"records": records}):
        with pytest.raises(shardscope.Error) as raised:
            shardscope.validate(damaged, level="values", **wrong)
        assert raised.value.code == "usage"
    with pytest.raises(shardscope.Error) as raised:
        shardscope.ready(damaged, level="values", on="local:2")
    assert raised.value.code == "usage"


def test_ready():
    card = shardscope.ready(genuine("torch_ranks/t2.15.0-hf-trainer"))
    assert card["schema"] == "shardscope.ready/1" and card["resumes"] and card["words"] == "resume from here"
    assert [line["id"] for line in card["lines"]] == [
        "weights", "optimizer", "masters", "step", "scheduler", "random", "loader", "commit", "loads_in", "fits_on"]
    torn = shardscope.open(genuine("dcp/t2.15.0-damaged-gap")).ready(level="metadata")
    assert not torn["resumes"] and torn["words"].startswith("do not resume: ")


def test_convert_plan_diff(tmp_path):
    target = tmp_path / "out"
    plan = shardscope.plan(STANDARD, target, to="safetensors", weights_only=True)
    assert plan["schema"] == "shardscope.plan/1" and not target.exists()
    calls = []
    report = shardscope.convert(STANDARD, target, to="safetensors", weights_only=True, exclude=["*.none"],
                                progress=lambda *call: calls.append(call))
    assert report["schema"] == "shardscope.report/1" and target.exists()
    assert calls and all(len(call) == 4 for call in calls)
    again = shardscope.diff(target, target, values=True)
    assert again["equal"] and again["values_compared"]
    proof = shardscope.diff(STANDARD, target, values=True, weights_only=True, exclude="*.none")
    assert proof["equal"] and proof["summary"]["different"] == 0 and proof["left_out_a"]
    assert shardscope.diff(STANDARD, target, select=["model.embed.weight"])["compared"] == 1
    with pytest.raises(shardscope.Error) as raised:
        shardscope.convert(STANDARD, target, to="safetensors")
    assert raised.value.code == "exists" and "overwrite=True" in raised.value.hint
    resharded = tmp_path / "resharded"
    shardscope.reshard(STANDARD, resharded, mesh="tp=2", shard=["*:tp=0"])
    assert shardscope.diff(STANDARD, resharded, values=True)["equal"]
    with pytest.raises(shardscope.Error) as raised:
        shardscope.convert(STANDARD, tmp_path / "x", no_such_option=3)
    assert raised.value.code == "usage" and "--help" in raised.value.hint


def test_progress_that_raises_stops(tmp_path):
    class Stop(Exception):
        pass

    def stop(*call):
        raise Stop

    with pytest.raises(Stop):
        shardscope.convert(STANDARD, tmp_path / "out", to="dcp", progress=stop)


def test_errors_have_the_fields_of_the_program(program, tmp_path):
    for path in ("/no/such", str(tmp_path)):
        document = documents(program, "info", path)
        with pytest.raises(shardscope.Error) as raised:
            shardscope.open(path)
        error = raised.value
        assert {key: getattr(error, key) for key in ("code", "message", "file", "offset", "tensor", "rule", "hint")} == {
            key: value for key, value in document.items() if key != "schema"}
        assert error.message in str(error)


def test_truncated_files_raise(tmp_path):
    """Every file of small checkpoints cut at many bytes: what is read is an Error or right, and the process lives."""
    numpy = pytest.importorskip("numpy")
    for case in ("dcp/t2.15.0-no-dist", "safetensors/hf-sharded", "torch_save/t2.15.0-state-dict", "deepspeed/z1_fp32_w3"):
        source = DATA / "genuine" / case / "ckpt"
        whole = {name: tensor.raw() for name, tensor in shardscope.open(source).items()}
        for file in sorted(p for p in source.rglob("*") if p.is_file())[:6]:
            size = file.stat().st_size
            for cut in sorted({0, 1, 7, size // 3, size // 2, size - 1}):
                copy = tmp_path / "copy"
                shutil.copytree(source, copy, copy_function=shutil.copyfile)
                os.truncate(copy / file.relative_to(source), cut)
                try:
                    checkpoint = shardscope.open(copy)
                    for name, tensor in checkpoint.items():
                        if name in whole and tensor.raw() != whole[name]:
                            # A rank file that is gone changes what a tensor is, which validation says.
                            assert not shardscope.validate(copy), (case, file, cut, name)
                            break
                except shardscope.Error as error:
                    assert error.message
                shutil.rmtree(copy)


def test_changed_file_raises(tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(STANDARD, copy, copy_function=shutil.copyfile)
    checkpoint = shardscope.open(copy)
    tensor = checkpoint["model.embed.weight"]
    for file in copy.glob("*.distcp"):
        os.truncate(file, 10)
    with pytest.raises(shardscope.Error) as raised:
        tensor[:]
    assert raised.value.file and raised.value.tensor == "model.embed.weight"


def test_many_threads():
    numpy = pytest.importorskip("numpy")
    checkpoint = shardscope.open(STANDARD)
    wanted = checkpoint["model.embed.weight"][:]
    wrong = []

    def read():
        for _ in range(50):
            if not numpy.array_equal(checkpoint["model.embed.weight"][1:, ::2], wanted[1:, ::2]):
                wrong.append(1)

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_fork_opens_again():
    """As DataLoader's workers do it; what was opened there is used by both."""
    run = python(f"""
import os, sys, shardscope
checkpoint = shardscope.open({STANDARD!r})
tensor, objects = checkpoint["model.embed.weight"], checkpoint.objects
data = tensor.raw()
for turn in range(2):
    pid = os.fork()
    if pid == 0:
        right = tensor.raw() == data == checkpoint["model.embed.weight"].raw() and tensor.ranks == [0, 1, 2, 3]
        os._exit(0 if right and checkpoint.validate() and len(objects) == len([objects[name] for name in objects]) else 1)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status or tensor.raw() != data:
        sys.exit(status or 9)
""")
    assert run.returncode == 0, run.stderr


def test_fork_sees_another_checkpoint(tmp_path):
    place = tmp_path / "model"
    shutil.copytree(STANDARD, place, copy_function=shutil.copyfile)
    run = python(f"""
import os, shutil, sys, shardscope
checkpoint = shardscope.open({str(place)!r})
tensor = checkpoint["model.embed.weight"]
shutil.rmtree({str(place)!r})
shutil.copytree({genuine("deepspeed/z1_fp32_w3")!r}, {str(place)!r}, copy_function=shutil.copyfile)
pid = os.fork()
if pid == 0:
    try:
        tensor.raw()
    except shardscope.Error as error:
        os._exit(0 if error.code == "changed" else 2)
    os._exit(1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
""")
    assert run.returncode == 0, run.stderr


def test_interrupt_cancels(tmp_path):
    """Ctrl-C in the middle of a conversion: KeyboardInterrupt, nothing is published, and resume=True ends it."""
    numpy = pytest.importorskip("numpy")
    source = tmp_path / "big.safetensors"
    size = 64 << 20
    header = json.dumps({"w": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
    with open(source, "wb") as f:
        f.write(len(header).to_bytes(8, "little") + header)
        f.write(numpy.random.default_rng(1).standard_normal(size // 4, dtype="float32").tobytes())
    target = tmp_path / "out"
    run = python(f"""
import os, signal, sys, shardscope
def interrupt(*call):
    os.kill(os.getpid(), signal.SIGINT)
try:
    shardscope.convert({str(source)!r}, {str(target)!r}, to="dcp", progress=interrupt)
except KeyboardInterrupt:
    sys.exit(7)
""")
    assert run.returncode == 7, run
    if not target.exists():
        shardscope.convert(source, target, to="dcp", resume=True)
    assert shardscope.diff(source, target, values=True)["equal"]


def test_notebook():
    for case in ("dcp/t2.15.0-standard", "deepspeed/z1_fp32_w3", "safetensors/empty-file"):
        path = DATA / "genuine" / case / "ckpt"
        expected = json.loads((path.parent / "expected.json").read_text())
        page = shardscope.open(path / expected["file"] if "file" in expected else path)._repr_html_()
        assert page.count("<svg") == page.count("</svg>") == 1
        import xml.etree.ElementTree

        xml.etree.ElementTree.fromstring(page[page.index("<svg"):page.index("</svg>") + 6])


def test_slice_reads_little(tmp_path):
    """Of a large tensor in many chunks only what is asked for is read."""
    numpy = pytest.importorskip("numpy")
    n = 4096
    source = tmp_path / "big.safetensors"
    header = json.dumps({"w": {"dtype": "F32", "shape": [n, n], "data_offsets": [0, 4 * n * n]}}).encode()
    values = numpy.arange(n * n, dtype="float32").reshape(n, n)
    with open(source, "wb") as f:
        f.write(len(header).to_bytes(8, "little") + header + values.tobytes())
    sharded = tmp_path / "sharded"
    shardscope.convert(source, sharded, to="dcp", mesh="dp=2,tp=4", shard=["*:dp=0,tp=1"])
    for path in (source, sharded):
        tensor = shardscope.open(path)["w"]
        before = read_so_far()
        part = tensor[1000:1128, 2040:2168]
        assert read_so_far() - before <= part.nbytes + (1 << 20)
        assert numpy.array_equal(part, values[1000:1128, 2040:2168])


def read_so_far():
    for line in open("/proc/self/io"):
        if line.startswith("rchar"):
            return int(line.split()[1])
    raise AssertionError


def test_recipe(tmp_path):
    """What a recipe makes of a Megatron checkpoint, read in parts, is what a conversion writes."""
    numpy = pytest.importorskip("numpy")
    pytest.importorskip("ml_dtypes")
    source = genuine("megatron/m0.16.1-gpt-tp2-llama")
    options = {"map": "llama-hf-from-megatron", "set": RECIPE}
    target = tmp_path / "hf"
    shardscope.convert(source, target, to="safetensors", weights_only=True, **options)
    mapped, written = shardscope.open(source, **options), shardscope.open(target)
    assert set(written) <= set(mapped)
    for name in written:
        a, b = mapped[name], written[name]
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        whole = b[...]
        assert a.raw() == b.raw(), name
        for key in (slice(1, None, 2), (Ellipsis, slice(2, 5))):
            assert numpy.ascontiguousarray(a[key]).tobytes() == numpy.ascontiguousarray(whole[key]).tobytes(), (name, key)
    with pytest.raises(shardscope.Error):
        shardscope.open(source, map="no-such-recipe")


def test_sample(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    sample = shardscope.open_sample()
    assert len(sample) == 18 and sample.path.startswith(str(tmp_path))
    assert sample.validate(level="values").verdict == "safe"

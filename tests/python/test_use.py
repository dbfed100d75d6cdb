"""What Python programs expect of such objects: with, pickle, NumPy's indices, DLPack, Python's own exceptions."""
import copy
import errno
import json
import os
import pickle
import subprocess
import sys

import pytest
from conftest import genuine, sha256

import shardscope

numpy = pytest.importorskip("numpy")

STANDARD = genuine("dcp/t2.15.0-standard")
NAME = "model.embed.weight"


def files_open():
    return len(os.listdir("/proc/self/fd"))


def test_with_closes():
    before = files_open()
    with shardscope.open(STANDARD) as checkpoint:
        tensor, objects = checkpoint[NAME], checkpoint.objects
        tensor.raw()
        assert files_open() > before
    assert files_open() == before
    assert "closed" in repr(checkpoint) and checkpoint.path == STANDARD
    for use in (lambda: checkpoint[NAME], lambda: tensor.raw(), lambda: len(checkpoint), lambda: objects[next(iter(objects))],
                checkpoint.info, checkpoint.validate):
        with pytest.raises(shardscope.Error) as raised:
            use()
        assert raised.value.code == "usage" and "closed" in raised.value.message
    checkpoint.close()


def test_pickle(tmp_path):
    checkpoint = shardscope.open(STANDARD, format="dcp", rename="^model.embed=model.tokens")
    tensor = checkpoint["model.tokens.weight"]
    again, name, [first, second] = pickle.loads(pickle.dumps((checkpoint, "x", [tensor, tensor])))
    assert list(again) == list(checkpoint) and again.path == checkpoint.path and first is second
    assert first.raw() == tensor.raw() == copy.deepcopy(tensor).raw() and first.shape == tensor.shape
    # In a process elsewhere that has not seen it.
    os.symlink(STANDARD, tmp_path / "link")
    here = os.getcwd()
    try:
        os.chdir(tmp_path)
        relative = shardscope.open("link")
    finally:
        os.chdir(here)
    (tmp_path / "pickle").write_bytes(pickle.dumps((relative, relative[NAME])))
    subprocess.run([sys.executable, "-c", f"""
import os, pickle
os.chdir("/")
checkpoint, tensor = pickle.loads(open({str(tmp_path / "pickle")!r}, "rb").read())
assert tensor.raw() == checkpoint[{NAME!r}].raw() and len(checkpoint) == {len(relative)}
"""], check=True, timeout=300)


def test_pickle_of_a_master():
    for options in ({}, {"rename": "^(.*)$=x.$1"}):
        checkpoint = shardscope.open(genuine("deepspeed/z1_bf16_w2"), **options)
        master = next(tensor.master for tensor in checkpoint.values() if tensor.master)
        again = pickle.loads(pickle.dumps(master))
        assert (again.dtype, again.raw()) == (master.dtype, master.raw())


def test_errors_are_pickled():
    for make in (lambda: shardscope.open("/no/such"), lambda: shardscope.open(STANDARD)["no.such"]):
        with pytest.raises(shardscope.Error) as raised:
            make()
        again = pickle.loads(pickle.dumps(raised.value))
        assert type(again) is type(raised.value) and str(again) == str(raised.value)
        assert (again.code, again.file, again.hint) == (raised.value.code, raised.value.file, raised.value.hint)


INDICES = [
    [0, 2], [-1, 0, 0], numpy.array([[1, 2], [3, -7]]), ([1, 3], 2), (slice(None), [5, 0]), (2, [1, 1]), ([0, 3], [1, 5]),
    (slice(None, None, -2), [0, 2]), ([6, 1], slice(4, 0, -3)), (Ellipsis, [2]), [], (slice(0, 0), [1]), range(2, 5),
    numpy.arange(7) % 2 == 0, (slice(None), numpy.arange(6) > 2), numpy.arange(42).reshape(7, 6) % 5 == 0,
    numpy.zeros(7, bool), (numpy.arange(7) > 3, 1), (numpy.int64(3), numpy.array(2)), (slice(5, 1, -2), slice(None, None, -1)),
]


@pytest.mark.parametrize("key", INDICES, ids=str)
def test_indices_are_those_of_numpy(key):
    tensor = shardscope.open(STANDARD)[NAME]
    whole = tensor[...]
    ours, theirs = tensor[key], whole[key]
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype and numpy.array_equal(ours, theirs)


def test_wrong_indices():
    tensor = shardscope.open(STANDARD)[NAME]
    for key in ([7], [-8], (0, [0, 6]), numpy.arange(6) > 2, (slice(None), numpy.arange(7) > 2), numpy.zeros((7, 5), bool)):
        with pytest.raises(IndexError) as raised:
            tensor[key]
        assert isinstance(raised.value, shardscope.Error)


def test_lists_read_what_they_name(tmp_path):
    """Rows that lie together are read together, and nothing between others."""
    rows, columns = 1 << 14, 256
    values = numpy.arange(rows * columns, dtype="float32").reshape(rows, columns)
    header = json.dumps({"w": {"dtype": "F32", "shape": [rows, columns], "data_offsets": [0, values.nbytes]}}).encode()
    place = tmp_path / "big.safetensors"
    place.write_bytes(len(header).to_bytes(8, "little") + header + values.tobytes())
    tensor = shardscope.open(place)["w"]
    wanted = [3, 5000, 5001, rows - 1, 3]
    before = read_so_far()
    part = tensor[wanted]
    assert read_so_far() - before < 1 << 20
    assert numpy.array_equal(part, values[wanted])
    for row, expected in zip(tensor, values):
        assert numpy.array_equal(row, expected)
    # Rows one by one are read many at a time.
    before = reads_so_far()
    assert len(list(tensor)) == rows
    assert reads_so_far() - before < 1000


def read_so_far():
    return _io("rchar")


def reads_so_far():
    return _io("syscr")


def _io(name):
    return int(next(line.split()[1] for line in open("/proc/self/io") if line.startswith(name)))


def test_arrays():
    tensor = shardscope.open(STANDARD)[NAME]
    whole = tensor[...]
    assert tensor and all(bool(each) for each in shardscope.open(STANDARD).values())
    assert numpy.array_equal(numpy.asarray(tensor), whole) and numpy.asarray(tensor, "float64").dtype == "float64"
    assert numpy.array_equal(numpy.from_dlpack(tensor), whole)
    if numpy.lib.NumpyVersion(numpy.__version__) >= "2.0.0":
        with pytest.raises(ValueError):
            numpy.asarray(tensor, copy=False)
        assert numpy.array_equal(numpy.array(tensor, copy=True), whole)
    with pytest.raises(ValueError):
        tensor.__array__(copy=False)
    assert tensor.__dlpack_device__() == (1, 0)
    for wrong in ({"copy": False}, {"dl_device": (2, 0)}):
        with pytest.raises(BufferError):
            tensor.__dlpack__(**wrong)


def test_without_numpy(tmp_path):
    (tmp_path / "numpy.py").write_text("raise ImportError")
    run = subprocess.run([sys.executable, "-c", f"""
import shardscope
tensor = shardscope.open({STANDARD!r})[{NAME!r}]
assert len(tensor.raw()) == 168
for read in (lambda: tensor[:2], lambda: tensor[[0, 2]], lambda: next(iter(tensor))):
    try:
        read()
    except ImportError as error:
        assert isinstance(error, shardscope.Error) and "pip install 'shardscope[numpy]'" in str(error), error
    else:
        raise SystemExit("it was read")
"""], env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ['PYTHONPATH']}"}, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr


def test_errors_are_those_of_python(tmp_path):
    checkpoint = shardscope.open(STANDARD)
    there = tmp_path / "there.ssidx"
    there.write_bytes(b"")
    cases = [
        (FileNotFoundError, "not-found", lambda: shardscope.open("/no/such")),
        (FileExistsError, "exists", lambda: checkpoint.index(there)),
        (KeyError, "not-found", lambda: checkpoint["no.such"]),
        (KeyError, "not-found", lambda: checkpoint.select("no*")),
        (KeyError, "not-found", lambda: checkpoint.extract("no.such", tmp_path / "x.npy")),
        (TypeError, "usage", lambda: checkpoint[0]),
        (IndexError, "usage", lambda: checkpoint[NAME][9]),
        (ValueError, "usage", lambda: checkpoint.validate("deep")),
        (ValueError, "usage", lambda: shardscope.convert(STANDARD, tmp_path / "x", verify="hard")),
        (ValueError, "usage", lambda: checkpoint.select("re:(")),
    ]
    for type, code, use in cases:
        with pytest.raises(type) as raised:
            use()
        error = raised.value
        assert isinstance(error, shardscope.Error) and error.code == code, error
        assert error.message in str(error)
    with pytest.raises(FileNotFoundError) as raised:
        shardscope.open("/no/such")
    assert raised.value.errno == errno.ENOENT and raised.value.filename == "/no/such" == raised.value.file
    assert shardscope.Error.__module__ == "shardscope"


def test_names_that_were_meant(tmp_path):
    checkpoint = shardscope.open(STANDARD)
    for wrong in ("model.embed.wieght", "model.embd.weight", "embed.weight"):
        for use in (checkpoint.__getitem__, checkpoint.select):
            with pytest.raises(KeyError) as raised:
                use(wrong)
            assert f"did you mean '{NAME}'?" == raised.value.hint
    with pytest.raises(KeyError) as raised:
        checkpoint.torch(["module.*"])
    assert f"such as '{next(iter(checkpoint))}'" in raised.value.hint
    with pytest.raises(FileNotFoundError) as raised:
        shardscope.open(STANDARD + "x")
    assert (raised.value.message, raised.value.hint) == ("there is no such file or directory", f"did you mean '{STANDARD}'?")
    for options, meant in (({"mehs": "tp=4"}, "mesh"), ({"weight_only": True}, "weights_only"), ({"selct": "*"}, "select")):
        with pytest.raises(ValueError) as raised:
            shardscope.convert(STANDARD, tmp_path / "x", **options)
        assert f"did you mean {meant}=?" in raised.value.hint and "--" not in raised.value.message
    with pytest.raises(ValueError) as raised:
        shardscope.convert(STANDARD, tmp_path / "x", max_file_size="much")
    assert "--" not in str(raised.value)
    with pytest.raises(ValueError) as raised:
        shardscope.convert(STANDARD, tmp_path / "x", verify="hard")
    assert raised.value.message.startswith("verify: ")


def test_patterns_are_those_of_the_command_line():
    checkpoint = shardscope.open(STANDARD)
    assert checkpoint.select("re:model\\.embed\\..*") == checkpoint.select("model.embed.*") == [NAME]
    assert checkpoint.select("model.?mbed.weight") == [NAME]
    with pytest.raises(KeyError):
        checkpoint.select("model.[e]mbed.weight")  # no class of characters


def test_statistics_and_rows(program):
    checkpoint = shardscope.open(STANDARD)
    for name in (NAME, "model.dt.int64"):
        shown = json.loads(subprocess.run([program, "show", STANDARD, name, "--values", "--json"], capture_output=True).stdout)
        assert checkpoint[name].stats() == shown["values"]
    mapped = shardscope.open(STANDARD, rename="^=x.")
    for use in (mapped["x." + NAME].stats, mapped.digest, lambda: mapped["x." + NAME].extract("x.npy")):
        with pytest.raises(shardscope.Error) as raised:
            use()
        assert raised.value.code == "unsupported" and "recipe" in raised.value.message
    rows = checkpoint.tensors
    assert [row["name"] for row in rows] == list(checkpoint)
    row = next(row for row in rows if row["name"] == NAME)
    assert row == {"name": NAME, "dtype": "float32", "shape": [7, 6], "bytes": 168, "role": "parameter", "alias_of": None,
                   "ranks": [0, 1, 2, 3]}


def test_file_order():
    checkpoint = shardscope.open(STANDARD)
    tensors = checkpoint.in_file_order()
    assert sorted(tensor.name for tensor in tensors) == sorted(checkpoint)
    places = [min((chunk["file"], chunk["offset"]) for chunk in tensor.chunks) for tensor in tensors if tensor.chunks]
    assert places == sorted(places)
    assert {tensor.name for tensor in checkpoint.in_file_order("model.*", weights_only=True)} == set(
        checkpoint.select("model.*", weights_only=True))


def test_python_m_is_the_command_line(program):
    run = subprocess.run([sys.executable, "-m", "shardscope", "formats", "--json"], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0 and json.loads(run.stdout) == shardscope.formats()


def test_what_is_said_is_logged(tmp_path, caplog):
    for step in (1, 2):
        os.symlink(STANDARD, tmp_path / f"step-{step}")
    (tmp_path / "latest").write_text("step-1")
    shardscope.open(tmp_path)
    os.symlink(genuine("dcp/t2.15.0-damaged-gap"), tmp_path / "step-3")
    shardscope.latest(tmp_path)
    assert {record.name for record in caplog.records} == {"shardscope"}
    assert ["step-1: named by latest" in caplog.text, "step-3 is not whole: coverage.gap" in caplog.text] == [True, True]


def test_dir_names_what_there_is():
    names = dir(shardscope)
    assert {"torch", "safetensors_open", "types", "latest", "open"} <= set(names) and "os" not in names
    assert all(getattr(shardscope, name, None) is not None for name in names if name != "torch")


def test_paths_as_people_write_them(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "my ckpt").symlink_to(STANDARD)
    checkpoint = shardscope.open("~/my ckpt")
    assert checkpoint.path == str(tmp_path / "my ckpt") and pickle.loads(pickle.dumps(checkpoint)).path == checkpoint.path
    assert shardscope.open(f"file://{tmp_path}/my%20ckpt").path == checkpoint.path
    checkpoint.extract(NAME, "~/new/x.npy")
    checkpoint.index("~/new/x.ssidx")
    assert sorted(os.listdir(tmp_path / "new")) == ["x.npy", "x.ssidx"]
    shardscope.convert("~/my ckpt", "~/new/out", to="safetensors")
    assert list(shardscope.open(tmp_path / "new" / "out"))
    for other in ("abc://bucket/x", "file://no-such-host/x"):
        with pytest.raises(shardscope.Error) as raised:
            shardscope.open(other)
        assert raised.value.code == "unsupported" and "://" in raised.value.hint


def test_ranks_add_up():
    checkpoint = shardscope.open(genuine("dcp/t2.15.0-fsdp2-tp"))
    ranks = checkpoint.ranks
    assert [rank["rank"] for rank in ranks] == [0, 1, 2, 3] and all(rank["place"] for rank in ranks)
    assert sum(rank["bytes"] for rank in ranks) >= checkpoint.info()["totals"]["bytes"]
    for rank in ranks:
        assert rank["bytes"] == sum(rank[f"{role}_bytes"] for role in ("parameter", "buffer", "optimizer", "other"))


def test_quantized_weights_are_computed(program, tmp_path):
    source = os.path.join(os.environ["SHARDSCOPE_TEST_DATA"], "quantized", "torchao")
    with open(os.path.join(source, "expected.json"), encoding="utf-8") as file:
        expected = json.load(file)
    checkpoint = shardscope.open(source, dequantize="fp32")
    for name, answer in expected.items():
        assert sha256(checkpoint[name].raw()) == answer["fp32"] and checkpoint[name].numpy().dtype == numpy.float32
    digests = checkpoint.digest("*.weight", "sha256")["tensors"]
    assert digests == {name: answer["fp32"] for name, answer in expected.items()}
    plain = str(tmp_path / "plain")
    shardscope.convert(source, plain, to="safetensors", dequantize="bf16")
    assert shardscope.diff(source, plain, values=True, dequantize="bf16")["equal"]
    assert not shardscope.diff(source, plain)["equal"]
    with pytest.raises(shardscope.Error) as raised:
        shardscope.open(STANDARD, dequantize="bf16")
    assert raised.value.code == "unsupported"

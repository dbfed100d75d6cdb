"""Every genuine checkpoint through the module equals what its framework says of it."""
import json
import subprocess

import pytest
from conftest import cases, sha256

import shardscope

CASES = list(cases())


def open_case(path, expected):
    options = {}
    for option in expected.get("options", []):
        name, _, value = option.partition("=")
        options.setdefault(name.lstrip("-").replace("-", "_"), []).append(value)
    return shardscope.open(path, **options)


@pytest.mark.parametrize("path, expected", [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_values(path, expected, program):
    """Names, dtypes, shapes and the sha256 of all values; a damaged case gives the values that the program gives, or its
    error."""
    listed = subprocess.run([program, "digest", path, "--algorithm", "sha256", "--json"], capture_output=True, text=True)
    document = json.loads(listed.stdout) if listed.stdout else {}
    try:
        checkpoint = shardscope.open(path)
    except shardscope.Error as error:
        assert document.get("schema") == "shardscope.error/1", error
        assert error.code == document["code"]
        assert error.message == document["message"]
        return
    whole = "findings" not in expected
    values = {}
    for name in checkpoint:
        tensor = checkpoint[name]
        try:
            values[name] = sha256(tensor.raw())
        except shardscope.Error as error:
            assert not whole or listed.returncode != 0, error
            assert error.code and error.message
    assert len(checkpoint) == len(list(checkpoint)) == checkpoint.info()["totals"]["tensors"]
    if listed.returncode == 0:
        # The genuine checkpoint's own numbers are what the program is tested against; here they are asked for again.
        assert values == {name: digest for name, digest in digests(document).items()}
    if not whole:
        return
    for name, facts in expected.get("tensors", {}).items():
        if name not in checkpoint or "sha256" not in facts:
            continue  # spelled in another way; the tests of the format know how
        assert checkpoint[name].dtype == facts["dtype"], name
        assert list(checkpoint[name].shape) == facts["shape"], name
        assert values[name] == facts["sha256"], name


def digests(document):
    tensors = document["tensors"]
    if isinstance(tensors, dict):
        return tensors
    return {entry["name"]: entry["digest"] for entry in tensors}


@pytest.mark.parametrize("path, expected", [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_slices(path, expected):
    """Slices in all dimensions, with steps of both signs, equal those of the whole array."""
    numpy = pytest.importorskip("numpy")
    pytest.importorskip("ml_dtypes")
    try:
        checkpoint = shardscope.open(path)
    except shardscope.Error:
        pytest.skip("damaged")
    for name in list(checkpoint)[:40]:
        tensor = checkpoint[name]
        try:
            whole = tensor.numpy()
        except shardscope.Error:
            continue
        assert whole.shape == tensor.shape
        same = lambda a, b: numpy.asarray(a).tobytes() == numpy.ascontiguousarray(b).tobytes() and (
            numpy.shape(a) == numpy.shape(b))
        keys = [Ellipsis]
        if tensor.ndim:
            n = tensor.shape[0]
            keys += [slice(n // 3, None, 2), (Ellipsis, slice(1, None, 2)), (Ellipsis, slice(None, None, -1)),
                     slice(n, 0, -3), slice(5, 5), (slice(None, None, 3),) * tensor.ndim]
            if n:
                keys += [0, -1, (n // 2, Ellipsis), (Ellipsis, slice(0, 1))]
            if tensor.ndim > 1 and tensor.shape[1]:
                keys += [(slice(None), 0), (slice(None), slice(1, 3)), (slice(n // 2, None), -1)]
        for key in keys:
            assert same(tensor[key], whole[key]), (name, key)

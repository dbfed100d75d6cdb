"""Every genuine checkpoint through the module equals what its framework says of it."""
import json
import subprocess

import pytest
from conftest import cases, options_of, sha256

import shardscope

CASES = list(cases())


@pytest.mark.parametrize("name, path, expected", CASES, ids=[c[0] for c in CASES])
def test_values(name, path, expected, program):
    """Names, dtypes, shapes and the sha256 of all values; a damaged case gives the values that the program gives, or its
    error."""
    options = options_of(name)
    words = [f"--{key}={value}" for key, value in options.items()]
    listed = subprocess.run([program, "digest", path, *words, "--algorithm", "sha256", "--json"], capture_output=True, text=True)
    document = json.loads(listed.stdout) if listed.stdout else {}
    try:
        checkpoint = shardscope.open(path, **options)
    except shardscope.Error as error:
        assert document.get("schema") == "shardscope.error/1", error
        assert error.code == document["code"]
        assert error.message == document["message"]
        return
    whole = "findings" not in expected
    values = {}
    for tensor_name in checkpoint:
        tensor = checkpoint[tensor_name]
        try:
            values[tensor_name] = sha256(tensor.raw())
        except shardscope.Error as error:
            assert not whole or listed.returncode != 0, error
            assert error.code and error.message
    assert len(checkpoint) == len(list(checkpoint)) == checkpoint.info()["totals"]["tensors"]
    if listed.returncode == 0:
        # The genuine checkpoint's own numbers are what the program is tested against; here they are asked for again.
        assert values == {name: digest for name, digest in digests(document).items()}
    if not whole:
        return
    for tensor_name, facts in expected.get("tensors", {}).items():
        if tensor_name not in checkpoint or "sha256" not in facts:
            continue  # spelled in another way; the tests of the format know how
        tensor = checkpoint[tensor_name]
        # paddle.save keeps float8 as int8.
        assert tensor.dtype == facts["dtype"] or (tensor.dtype, facts["dtype"][:6]) == ("int8", "float8"), tensor_name
        assert list(tensor.shape) == facts["shape"], tensor_name
        assert values[tensor_name] == facts["sha256"], tensor_name


def digests(document):
    tensors = document["tensors"]
    if isinstance(tensors, dict):
        return tensors
    return {entry["name"]: entry["digest"] for entry in tensors}


@pytest.mark.parametrize("name, path, expected", CASES, ids=[c[0] for c in CASES])
def test_slices(name, path, expected):
    """Slices in all dimensions, with steps of both signs, equal those of the whole array."""
    numpy = pytest.importorskip("numpy")
    pytest.importorskip("ml_dtypes")
    try:
        checkpoint = shardscope.open(path, **options_of(name))
    except shardscope.Error:
        pytest.skip("damaged")
    for tensor in list(checkpoint.values())[:40]:
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
            assert same(tensor[key], whole[key]), (tensor.name, key)

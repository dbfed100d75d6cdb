"""Views, which say what is to be read, and words for progress."""
import logging

import pytest
from conftest import genuine

import shardscope

numpy = pytest.importorskip("numpy")

STANDARD = genuine("dcp/t2.15.0-standard")
NAME = "model.embed.weight"


@pytest.fixture
def tensor():
    return shardscope.open(STANDARD)[NAME]


@pytest.mark.parametrize("keys", [
    [slice(2, 6)], [slice(None, None, -2)], [slice(1, None), slice(None, None, -1)], [1], [(slice(None), -1)], [..., (slice(3), slice(1, 5, 2))],
    [slice(6, 1, -1), slice(1, None, 2), 0], [slice(0, 0)], [(Ellipsis, slice(0, 4)), (2,)], [()],
])
def test_a_view_is_what_numpy_makes(tensor, keys):
    view, whole = tensor.view, tensor.numpy()
    for key in keys:
        view, whole = view[key], whole[key]
    assert isinstance(view, shardscope.View) and view.shape == whole.shape and view.size == whole.size and view.dtype == tensor.dtype
    numpy.testing.assert_array_equal(view.numpy(), whole)
    numpy.testing.assert_array_equal(view.T.numpy(), whole.T)
    if view.ndim == 2:
        numpy.testing.assert_array_equal(numpy.asarray(view.transpose(1, 0)[1:]), whole.transpose(1, 0)[1:])
        numpy.testing.assert_array_equal(view.T.T[:, 1:].numpy(), whole[:, 1:])


def test_a_view_reads_into_torch(tensor):
    torch = pytest.importorskip("torch")
    whole = tensor.torch()
    assert torch.equal(tensor.view[1:7:2, ::-1].T.torch(), torch.flip(whole[1:7:2], [1]).T)
    assert torch.equal(tensor.view[2].torch(), whole[2])


def test_a_view_reads_its_bytes_alone(monkeypatch):
    tensor, read = shardscope.open(STANDARD)[NAME], []
    numpy_of = shardscope.Tensor.numpy
    monkeypatch.setattr(shardscope.Tensor, "numpy", lambda self, key=..., threads=0: read.append(numpy_of(self, key, threads)) or read[-1])
    view = tensor.view[2:6].T[1:3]
    assert not read and view.shape == (2, 4)
    assert view.numpy().shape == (2, 4)
    assert [array.shape for array in read] == [(4, 2)]


def test_wrong_views(tensor):
    for key, type in [((0, 0, 0), IndexError), (10**6, IndexError), ([1, 2], TypeError), ("a", TypeError), (None, IndexError)]:
        with pytest.raises(type):
            tensor.view[key]
    for axes in [(0,), (0, 0), (0, 2)]:
        with pytest.raises(ValueError):
            tensor.view.transpose(*axes)
    with pytest.raises(ValueError):
        tensor.view.__array__(copy=False)


def test_progress_as_records(tmp_path, caplog):
    with caplog.at_level(logging.INFO, logger="shardscope"):
        shardscope.convert(STANDARD, tmp_path / "out", to="dcp", progress="log")
    assert [record for record in caplog.records if record.levelno == logging.INFO and " bytes" in record.getMessage()]
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="shardscope"):
        shardscope.open(STANDARD).validate("values", progress="log")
    said = [record.getMessage() for record in caplog.records]
    assert said and len(said) == len(set(said))


def test_progress_of_another_word(tmp_path):
    with pytest.raises(ValueError, match="'tqdm' and 'log'"):
        shardscope.convert(STANDARD, tmp_path / "out", to="dcp", progress="bar")
    assert not (tmp_path / "out").exists()

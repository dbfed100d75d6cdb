"""Inspect, validate, convert and load distributed checkpoints of any framework, without the framework.

    >>> import shardscope
    >>> ckpt = shardscope.open("iter_0001000")
    >>> ckpt["model.embed.weight"][:4, :4]

Importing needs neither torch nor NumPy. ``shardscope.torch`` has what ``torch.distributed.checkpoint`` takes.
"""
from __future__ import annotations

import os

from . import _shardscope
from ._checkpoint import Checkpoint, Objects, Opaque, open, open_any, opening
from ._documents import parsed
from ._errors import Error
from ._program import program
from ._runs import Run, RunValidation, Step, latest, run
from ._tensor import Tensor
from ._validation import Finding, Validation
from ._words import words_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional, Union

    from . import torch
    from ._safetensors import safetensors_open
    from ._words import Progress

    _Place = Union[str, os.PathLike]

__version__: str = _shardscope.__version__
__all__ = ["Checkpoint", "Error", "Finding", "Objects", "Opaque", "Run", "RunValidation", "Step", "Tensor", "Validation",
           "average", "convert", "diff", "digest", "extract", "formats", "index", "latest", "open", "plan", "ready", "recipes",
           "reshard", "run", "safetensors_open", "torch", "validate"]


def _opened(place: Union[_Place, Checkpoint], options: Optional[dict[str, Any]] = None) -> Checkpoint:
    return place if isinstance(place, Checkpoint) else open(place, **opening(options or {}))


def validate(path: Union[_Place, Checkpoint], level: str = "files", **options: Any) -> Union[Validation, RunValidation]:
    """Opens and validates; see Checkpoint.validate. Of the directory of a run all steps; see Run.validate."""
    checkpoint = path if isinstance(path, Checkpoint) else open_any(path, opening(options))
    if checkpoint is None:
        return run(path).validate(level, **options)
    return checkpoint.validate(level, **options)


def ready(path: Union[_Place, Checkpoint], level: str = "files", **options: Any) -> dict:
    """May a run resume from this? See Checkpoint.ready; of the directory of a run see Run.ready."""
    checkpoint = path if isinstance(path, Checkpoint) else open_any(path, opening(options))
    if checkpoint is None:
        return run(path).ready(level, **options)
    return checkpoint.ready(level, **options)


def digest(path: Union[_Place, Checkpoint], pattern: str = "*", algorithm: str = "tile", **options: Any) -> dict:
    """Opens, and a digest of each tensor; see Checkpoint.digest."""
    return _opened(path, options).digest(pattern, algorithm, **options)


def index(path: Union[_Place, Checkpoint], file: Optional[_Place] = None, overwrite: bool = False, **options: Any) -> dict:
    """Opens, and writes what the metadata says into one small file; see Checkpoint.index."""
    return _opened(path, options).index(file, overwrite)


def extract(path: Union[_Place, Checkpoint], tensor: str, file: _Place, overwrite: bool = False, **options: Any) -> dict:
    """Opens, and writes one tensor into a file; see Checkpoint.extract."""
    return _opened(path, options).extract(tensor, file, overwrite, **options)


def formats() -> dict:
    """Every format: what it reads, writes and can hold (shardscope.formats/1)."""
    return parsed(_shardscope.formats())


def recipes() -> dict:
    """The recipes that are built in, for ``map=`` (shardscope.recipes/1)."""
    return parsed(_shardscope.recipes())


def diff(a: Union[_Place, Checkpoint], b: Union[_Place, Checkpoint], values: bool = False,
         progress: Optional[Progress] = None, **options: Any) -> dict:
    """What differs between two checkpoints, whatever their formats and shardings (shardscope.diff/1).

    values: compare every element. options: as of ``shardscope diff``: ``rename=["FROM=TO"]``, ``map=``, ``set=``.
    """
    first, second = _opened(a, options), _opened(b, options)
    return parsed(_shardscope.diff(first._open, second._open, words_of({"values": values, **options}), progress))


def _convert(verb: str, places: list[_Place], options: dict, progress: Optional[Progress]) -> dict:
    ends = [os.fspath(place) for place in places]
    return parsed(_shardscope.convert(verb, ends, words_of(options), program(), progress))


def plan(source: _Place, destination: _Place, **options: Any) -> dict:
    """What a conversion would read, write and leave out (shardscope.plan/1). Options as of ``convert``."""
    return _convert("plan", [source, destination], options, None)


def convert(source: _Place, destination: _Place, progress: Optional[Progress] = None, **options: Any) -> dict:
    """Converts; the destination appears whole or not at all. Returns the report (shardscope.report/1).

    options: those of ``shardscope convert``, with ``_`` for ``-`` and lists for what is repeated:
    ``to="safetensors"``, ``mesh="tp=4"``, ``shard=["*.weight:tp=0"]``, ``weights_only=True``, ``on="local:4"``.
    progress(phase, bytes_done, bytes_total, tensor) is called some times a second; what it raises, and Ctrl-C, stop the
    conversion, which ``resume=True`` continues. Raises Error.
    """
    return _convert("convert", [source, destination], options, progress)


def reshard(source: _Place, destination: _Place, progress: Optional[Progress] = None, **options: Any) -> dict:
    """As convert, in the format of the source."""
    return _convert("reshard", [source, destination], options, progress)


def average(sources: list[_Place], destination: _Place, progress: Optional[Progress] = None, **options: Any) -> dict:
    """Averages the values of several checkpoints of one model, in the order of training; as ``shardscope average``."""
    return _convert("average", [*sources, destination], options, progress)


def __getattr__(name: str) -> Any:
    import importlib

    if name == "torch":
        return importlib.import_module(".torch", __name__)
    if name == "safetensors_open":
        return importlib.import_module("._safetensors", __name__).safetensors_open
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

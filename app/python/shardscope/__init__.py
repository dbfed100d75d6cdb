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
from ._view import View
from ._words import words_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Literal, Optional, Union

    from typing_extensions import Unpack

    from . import _options, callbacks, torch, types
    from ._safetensors import safetensors_open
    from ._words import Progress

    _Place = Union[str, os.PathLike[str]]

__version__: str = _shardscope.__version__
__all__ = ["Checkpoint", "Error", "Finding", "Objects", "Opaque", "Run", "RunValidation", "Step", "Tensor", "Validation",
           "View", "average", "callbacks", "convert", "diff", "digest", "extract", "formats", "index", "latest", "open", "open_sample", "plan", "ready",
           "recipes", "stats",
           "reshard", "run", "safetensors_open", "save", "torch", "types", "validate"]


def _opened(place: Union[_Place, Checkpoint], options: Mapping[str, Any]) -> Checkpoint:
    return place if isinstance(place, Checkpoint) else open(place, **opening(options))


def validate(path: Union[_Place, Checkpoint], level: types.Level = "files", expect: Optional[_Place] = None, examples: int = 100,
             progress: Optional[Progress] = None,
             **options: Unpack[_options.ValidateOptions]) -> Union[Validation, RunValidation]:
    """Opens and validates; see Checkpoint.validate. Of the directory of a run all steps; see Run.validate."""
    how: Any = {"level": level, "expect": expect, "examples": examples, "progress": progress, **options}
    if isinstance(path, Checkpoint):
        return path.validate(**how)
    checkpoint = open_any(path, opening(options))
    return run(path).validate(**how) if checkpoint is None else checkpoint.validate(**how)


def ready(path: Union[_Place, Checkpoint], level: types.Level = "files", progress: Optional[Progress] = None,
          **options: Unpack[_options.OpenedOptions]) -> types.Ready:
    """May a run resume from this? See Checkpoint.ready; of the directory of a run see Run.ready."""
    how: Any = {"level": level, "progress": progress, **options}
    if isinstance(path, Checkpoint):
        return path.ready(**how)
    checkpoint = open_any(path, opening(options))
    return run(path).ready(**how) if checkpoint is None else checkpoint.ready(**how)


def stats(path: Union[_Place, Checkpoint], by: types.ValuesBy = "module", progress: Optional[Progress] = None,
          **options: Unpack[_options.OpenedOptions]) -> types.Stats:
    """What the values are like; see Checkpoint.stats, and Run.stats of the directory of a run."""
    how: Any = {"by": by, "progress": progress, **options}
    if isinstance(path, Checkpoint):
        return path.stats(**how)
    checkpoint = open_any(path, opening(options))
    return run(path).stats(**how) if checkpoint is None else checkpoint.stats(**how)


def digest(path: Union[_Place, Checkpoint], pattern: str = "*", algorithm: Literal["tile", "sha256", "crc32"] = "tile",
           progress: Optional[Progress] = None, **options: Unpack[_options.ValidateOptions]) -> types.Digest:
    """Opens, and a digest of each tensor; see Checkpoint.digest."""
    how: Any = options
    return _opened(path, options).digest(pattern, algorithm, progress, **how)


def index(path: Union[_Place, Checkpoint], file: Optional[_Place] = None, overwrite: bool = False,
          **options: Unpack[_options.OpenedOptions]) -> types.Index:
    """Opens, and writes what the metadata says into one small file; see Checkpoint.index."""
    return _opened(path, options).index(file, overwrite)


def extract(path: Union[_Place, Checkpoint], tensor: str, file: _Place, overwrite: bool = False,
            progress: Optional[Progress] = None, **options: Unpack[_options.OpenedOptions]) -> types.Extract:
    """Opens, and writes one tensor into a file; see Checkpoint.extract."""
    how: Any = options
    return _opened(path, options).extract(tensor, file, overwrite, progress, **how)


def open_sample() -> Checkpoint:
    """Opens a small checkpoint that is part of this package: a model and its optimizer on four ranks."""
    return open(_shardscope.sample())


def formats() -> types.Formats:
    """Every format: what it reads, writes and can hold (shardscope.formats/1)."""
    return parsed(_shardscope.formats())


def recipes() -> types.Recipes:
    """The recipes that are built in, for ``map=`` (shardscope.recipes/1)."""
    return parsed(_shardscope.recipes())


def diff(a: Union[_Place, Checkpoint], b: Union[_Place, Checkpoint], values: bool = False,
         progress: Optional[Progress] = None, **options: Unpack[_options.DiffOptions]) -> types.Diff:
    """What differs between two checkpoints, whatever their formats and shardings (shardscope.diff/1).

    values: compare every element; what differs most comes first. options: as of ``shardscope diff``: ``weights_only=True``,
    ``select=``, ``exclude=``, ``rename=["FROM=TO"]``, ``map=``, ``set=``, ``dequantize=``, for the side that holds quantized weights.
    """
    stored = {name: value for name, value in options.items() if name != "dequantize"}
    first, second = _opened(a, stored), _opened(b, stored)
    return parsed(_shardscope.diff(first._open, second._open, words_of({"values": values, **options}), progress))


def _convert(verb: str, places: list[_Place], options: Mapping[str, Any], progress: Optional[Progress]) -> Any:
    ends = [os.fspath(place) for place in places]
    return parsed(_shardscope.convert(verb, ends, words_of(options), program(), progress))


def plan(source: _Place, destination: _Place, **options: Unpack[_options.PlanOptions]) -> types.Plan:
    """What a conversion would read, write and leave out (shardscope.plan/1). Options as of ``convert``."""
    return _convert("plan", [source, destination], options, None)


def convert(source: _Place, destination: _Place, progress: Optional[Progress] = None,
            **options: Unpack[_options.ConvertOptions]) -> types.Report:
    """Converts; the destination appears whole or not at all. Returns the report (shardscope.report/1; of a part, shardscope.part/1).

    options: those of ``shardscope convert``, with ``_`` for ``-`` and lists for what is repeated:
    ``to="safetensors"``, ``mesh="tp=4"``, ``shard=["*.weight:tp=0"]``, ``weights_only=True``, ``on="local:4"``.
    progress(phase, bytes_done, bytes_total, tensor) is called some times a second; what it raises, and Ctrl-C, stop the
    conversion, which ``resume=True`` continues. ``progress="tqdm"`` shows a bar, ``progress="log"`` tells the logger
    ``shardscope`` at each tenth. Raises Error.
    """
    return _convert("convert", [source, destination], options, progress)


def reshard(source: _Place, destination: _Place, progress: Optional[Progress] = None,
            **options: Unpack[_options.ReshardOptions]) -> types.Report:
    """As convert, in the format of the source."""
    return _convert("reshard", [source, destination], options, progress)


def average(sources: list[_Place], destination: _Place, progress: Optional[Progress] = None,
            **options: Unpack[_options.AverageOptions]) -> types.Report:
    """Averages the values of several checkpoints of one model, in the order of training; as ``shardscope average``."""
    return _convert("average", [*sources, destination], options, progress)


def save(state: Any, destination: _Place, progress: Optional[Progress] = None,
         **options: Unpack[_options.ConvertOptions]) -> types.Report:
    """Writes a state dict that this process has in memory, in any format and on any mesh (shardscope.report/1).

    state: what torch.save takes: tensors (NumPy arrays count as such) and plain values in dicts and lists. Tensors of the processor are
    read where they are; do not change them meanwhile.
    options: as of ``convert``, ``to="safetensors"`` among them, but those of several processes.
    """
    from ._state import archive_of

    archive = archive_of(state)
    words = words_of({"to": "safetensors", **options})
    return parsed(_shardscope.save(archive.pieces, os.fspath(destination), words, program(), progress))


def __getattr__(name: str) -> Any:
    import importlib

    if name in ("callbacks", "torch", "types"):
        return importlib.import_module(f".{name}", __name__)
    if name == "safetensors_open":
        return importlib.import_module("._safetensors", __name__).safetensors_open
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

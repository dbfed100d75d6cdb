"""Open checkpoints: a mapping from names to tensors that are read when asked for."""
from __future__ import annotations

import os
from collections.abc import Mapping

from . import _dtypes, _shardscope
from ._documents import parsed
from ._errors import Error, NoPackage, NoTensor, SystemFailed, WrongType, WrongValue
from ._program import program
from ._tensor import Tensor, torch_empty
from ._validation import Validation
from ._words import words_of

# Importing is quick: what few calls need is imported by them.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, Literal, Optional, Union

    from typing_extensions import Unpack

    from . import _options, types
    from ._words import Progress

    Patterns = Union[str, Iterable[str], None]
    _Objects = Mapping[str, Any]
    _Tensors = Mapping[str, Tensor]
else:
    _Objects = _Tensors = Mapping


class Opaque:
    """A value that is no plain data, such as an object of a class: what it is and how it would be printed.

    Nothing of it was imported or called.
    """

    __slots__ = ("kind", "repr")

    def __init__(self, kind: str, repr: str) -> None:
        self.kind, self.repr = kind, repr

    def __repr__(self) -> str:
        return f"<opaque {self.kind}: {self.repr}>"


class Objects(_Objects):
    """The values of a checkpoint that are no tensors, by name: plain data as Python's own, all else as Opaque."""

    def __init__(self, checkpoint: "Checkpoint") -> None:
        self._checkpoint = checkpoint
        self._ids = {name: id for id, name in enumerate(checkpoint._open.object_names())}

    def __getitem__(self, name: str) -> Any:
        return self._checkpoint._open.object_value(self._ids[name], Opaque)

    def path_of(self, name: str) -> tuple[Any, ...]:
        return self._checkpoint._open.object_path(self._ids[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def __repr__(self) -> str:
        return f"<shardscope.Objects of {self._checkpoint.path!r}: {', '.join(self._ids)}>"


# Open checkpoints of a process that this one was forked from. Their threads are gone, so they are never ended.
_of_parent: list[Any] = []


def _of_pickle(words: tuple[Any, ...]) -> "Checkpoint":
    return Checkpoint(_shardscope.open(*words), words)


class Checkpoint(_Tensors):
    """An open checkpoint: a mapping from names to ``Tensor``; made by ``shardscope.open``.

    Opening has read its metadata only. It may be used by several threads, and in a ``with`` statement, which closes it. It can
    be pickled: where it arrives, and in a process that is forked, it is opened again, by its path and options.
    """

    def __init__(self, opened: _shardscope.OpenCheckpoint, words: tuple[Any, ...]) -> None:
        self._opened: Optional[_shardscope.OpenCheckpoint] = opened
        self._path: str = opened.path
        self._words = (words[0], _everywhere(opened.path), *words[2:])  # of _shardscope.open
        self._process = os.getpid()
        self._names: Optional[list[str]] = None

    @property
    def _open(self) -> _shardscope.OpenCheckpoint:
        if self._opened is None:
            raise WrongValue("usage", "the checkpoint is closed", file=self.path)
        if self._process != os.getpid():
            _of_parent.append(self._opened)
            self._opened, self._process, self._names = _shardscope.open(*self._words), os.getpid(), None
        return self._opened

    def close(self) -> None:
        """Closes its files. Tensors of it cannot be read any more; what was read from it stays."""
        if self._opened is not None and self._process != os.getpid():
            _of_parent.append(self._opened)
        self._opened = None

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_pickle, (self._words,)

    @property
    def path(self) -> str:
        return self._path

    @property
    def format(self) -> str:
        """``"dcp"``, ``"safetensors"``, ... as in ``--format``."""
        return self._open.format

    @property
    def mesh(self) -> Optional[types.Mesh]:
        """The ranks as a grid: ``{"axes": [{"name", "size"}], "source", "evidence"}``, or None."""
        return self.info()["mesh"]

    def info(self) -> types.Info:
        """What ``shardscope info --json`` says (shardscope.info/1)."""
        return parsed(self._open.info())

    @property
    def ranks(self) -> list[types.RankShare]:
        """What each rank holds, one row for each, as ``shardscope info --ranks`` says it: ``rank``, ``place`` (its coordinates
        on the mesh), ``tensors``, ``chunks``, ``bytes`` and what they are of, ``files``."""
        return parsed(self._open.rank_shares())

    @property
    def objects(self) -> Objects:
        """The values that are no tensors."""
        return Objects(self)

    @property
    def tensors(self) -> list[types.Row]:
        """One row for each tensor, for ``pandas.DataFrame`` or ``polars.DataFrame``: ``name``, ``dtype``, ``shape``, ``bytes``,
        ``role``, ``alias_of`` and ``ranks``."""
        rows: list[types.Row] = []
        for id in range(len(self)):
            name, dtype, shape, role, nbytes, alias_of = self._open.facts(id)
            rows.append({"name": name, "dtype": dtype, "shape": list(shape), "bytes": nbytes, "role": role, "alias_of": alias_of,
                         "ranks": self._open.ranks(id)})
        return rows

    def to_arrow(self) -> Any:
        """The rows of ``tensors`` as a ``pyarrow.Table``, for Parquet, DuckDB and all that takes Arrow. Needs pyarrow."""
        import importlib

        try:
            arrow = importlib.import_module("pyarrow")
        except ImportError:
            raise NoPackage("unsupported", "to_arrow() needs pyarrow, which is not installed", hint="pip install pyarrow") from None
        text, count = arrow.string(), arrow.uint64()
        return arrow.Table.from_pylist(self.tensors, arrow.schema([
            ("name", text), ("dtype", text), ("shape", arrow.list_(count)), ("bytes", count), ("role", text), ("alias_of", text),
            ("ranks", arrow.list_(arrow.uint32()))]))

    def __len__(self) -> int:
        return self._open.count()

    def __iter__(self) -> Iterator[str]:
        opened = self._open
        names = self._names = opened.names() if self._names is None else self._names
        return iter(names)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._open.find(name) >= 0

    def __getitem__(self, name: str) -> Tensor:
        if not isinstance(name, str):
            raise WrongType("usage", f"a checkpoint is asked for names of tensors, not for {type(name).__name__}", file=self.path)
        id = self._open.find(name)
        if id >= 0:
            return Tensor(self, id)
        meant = self._open.similar(name)
        raise NoTensor("not-found", f"has no tensor '{name}'", file=self.path,
                       hint=f"did you mean '{meant}'?" if meant else "list(checkpoint) has the names")

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def _chosen(self, patterns: Patterns, weights_only: bool = False) -> list[Tensor]:
        if patterns is None:
            ids: Iterable[int] = range(len(self))
        else:
            chosen: set[int] = set()
            for pattern in [patterns] if isinstance(patterns, str) else patterns:
                found = [self._open.find(pattern)] if pattern in self else self._open.matching(pattern)
                if not found:
                    meant = self._open.similar(pattern)
                    names = f"list(checkpoint) has the names, such as '{next(iter(self))}'" if len(self) else "there are no tensors"
                    raise NoTensor("not-found", f"no tensor matches '{pattern}'", file=self.path,
                                   hint=f"did you mean '{meant}'?" if meant else names)
                chosen.update(found)
            ids = sorted(chosen)
        tensors = [Tensor(self, id) for id in ids]
        return [t for t in tensors if t.role in ("parameter", "buffer")] if weights_only else tensors

    def select(self, patterns: Patterns = None, weights_only: bool = False) -> list[str]:
        """Names that match any of the patterns (``*``, ``?``, or ``re:`` and a regular expression for the whole name), in the
        checkpoint's order; None: all. weights_only: of parameters and buffers alone.

        A pattern without a match is an Error, which is a KeyError."""
        return [tensor.name for tensor in self._chosen(patterns, weights_only)]

    def in_file_order(self, patterns: Patterns = None, weights_only: bool = False) -> list[Tensor]:
        """The tensors in the order in which they are stored, in which reading them one by one is fastest."""
        chosen = {tensor._id: tensor for tensor in self._chosen(patterns, weights_only)}
        return [chosen[id] for id in self._open.in_file_order() if id in chosen]

    def torch(self, patterns: Patterns = None, out: Optional[Mapping[str, Any]] = None,
              pin_memory: bool = False, mmap: bool = False, threads: int = 0,
              progress: Optional[Progress] = None, device: Any = None, weights_only: bool = False) -> dict[str, Any]:
        """Tensors of torch by name, read at the same time.

        patterns and weights_only: as of ``select``. out: tensors to fill, by name, on any device;
        the others are made on ``device`` (None: the processor). Names of one stored tensor share their memory, as they
        did when they were saved.
        progress(phase, bytes_done, bytes_total, tensor) is called some times a second; or ``"tqdm"``, ``"log"``.
        mmap: tensors that are whole in one file are that file's pages, as ``safetensors.torch.load_file`` and
        ``torch.load(mmap=True)`` make them, and are read when they are used; writing to them does not change the
        file. For files that nobody changes meanwhile: to use a tensor of a file that was truncated ends the process.
        """
        from ._reads import Reads

        result: dict[str, Any] = {}
        maps: dict[str, Any] = {}
        reads = Reads(self)
        for tensor in self._chosen(patterns, weights_only):
            name = tensor.name
            given = None if out is None else out.get(name)
            if given is None and tensor.alias_of in result and tensor.alias_of != name:
                result[name] = result[tensor.alias_of]
                continue
            dtype = _dtypes.torch_dtype(tensor.dtype)
            if given is None and mmap and tensor.size:
                mapped = self._mapped(tensor, dtype, maps)
                if mapped is not None:
                    result[name] = mapped
                    continue
            if given is None:
                given = torch_empty(tensor.shape, dtype, pin_memory, device)
            elif tuple(given.shape) != tensor.shape or given.dtype != dtype:
                raise WrongValue("usage", f"out has {given.dtype} {list(given.shape)}, the tensor {dtype} "
                                          f"{list(tensor.shape)}", tensor=name)
            result[name] = given
            reads.add(tensor, [0] * tensor.ndim, list(tensor.shape), [1] * tensor.ndim, given.detach())
        reads.run(threads, progress)
        return result

    def jax(self, shardings: Any = None, patterns: Patterns = None, weights_only: bool = False, threads: int = 0) -> dict[str, Any]:
        """Arrays of jax by name. shardings: a ``jax.sharding.Sharding`` for all, a mapping of them by name, or a function that
        takes a ``Tensor`` and returns one; see ``Tensor.jax``. patterns and weights_only: as of ``select``."""
        def sharding_of(tensor: Tensor) -> Any:
            if isinstance(shardings, Mapping):
                return shardings.get(tensor.name)
            return shardings(tensor) if callable(shardings) else shardings

        chosen = self._chosen(patterns, weights_only)
        return {tensor.name: tensor.jax(sharding_of(tensor), threads) for tensor in chosen}

    def _mapped(self, tensor: Tensor, dtype: Any, maps: dict[str, Any]) -> Any:
        """The tensor in the mapping of its file; None where it has to be read. maps: those there are, by path."""
        import mmap

        import torch

        found = self._open.stored_whole(tensor._id)
        if found is None:
            return None
        file, path, size, offset = found
        try:
            if path not in maps:
                maps[path] = mmap.mmap(file, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        except (OSError, ValueError) as error:
            type, code = (Error, "changed") if isinstance(error, ValueError) else (SystemFailed, "io")
            raise type(code, f"cannot be mapped: {error}", file=path) from None
        finally:
            os.close(file)
        begin = offset // mmap.PAGESIZE * mmap.PAGESIZE
        maps[path].madvise(mmap.MADV_WILLNEED, begin, offset + tensor.nbytes - begin)
        if offset % dtype.itemsize:
            return None
        return torch.frombuffer(maps[path], dtype=dtype, count=tensor.size, offset=offset).view(tensor.shape)

    def validate(self, level: types.Level = "files", expect: Union[str, os.PathLike[str], None] = None, examples: int = 100,
                 progress: Optional[Progress] = None, **options: Unpack[_options.ReadingOptions]) -> Validation:
        """Is it whole and sane? level: ``metadata``, ``files`` or ``values`` (reads every byte).

        expect: another checkpoint whose names, shapes and dtypes this one must have. options: as of
        ``shardscope validate``, such as ``memory="2GiB"``, ``threads=4``; of level ``values`` also ``on="local:4"`` and
        ``records=``, for workers that share the reading.
        """
        return Validation(self, self._open.validate(words_of(options), level, "" if expect is None else os.fspath(expect),
                                                    examples, program(), progress))

    def ready(self, level: types.Level = "files", progress: Optional[Progress] = None,
              **options: Unpack[_options.WorkOptions]) -> types.Ready:
        """May a run resume from it? The ten lines of ``shardscope ready`` (shardscope.ready/1): ``resumes``, ``words``,
        ``lines`` with ``id``, ``mark`` (``yes``, ``no``, ``none``), ``text`` and ``evidence``.

        level and options: as of ``validate``.
        """
        return parsed(self._open.ready(words_of(options), level, progress))

    def stats(self, by: types.ValuesBy = "module", progress: Optional[Progress] = None,
              **options: Unpack[_options.WorkOptions]) -> types.Stats:
        """Norms, zeros and NaN by module, layer or tensor, as one step (shardscope.stats/1). Reads all values."""
        return parsed(self._open.stats(words_of(options), by, progress))

    def digest(self, pattern: str = "*", algorithm: Literal["tile", "sha256", "crc32"] = "tile",
               progress: Optional[Progress] = None, **options: Unpack[_options.ReadingOptions]) -> types.Digest:
        """A digest of each tensor whose name matches, which depends on neither format nor sharding (shardscope.digest/1).

        algorithm: ``tile``, the fastest, or ``sha256`` or ``crc32`` of the row-major little-endian bytes. options: as of
        ``validate``, ``on=`` and ``records=`` among them.
        """
        return parsed(self._open.digest(words_of(options), pattern, algorithm, program(), progress))

    def index(self, file: Union[str, os.PathLike[str], None] = None, overwrite: bool = False) -> types.Index:
        """Writes what the metadata says into one small file that opens like the checkpoint, anywhere
        (shardscope.index/1). file: None is the checkpoint's name with ``.ssidx``, in the current directory."""
        return parsed(self._open.index("" if file is None else os.fspath(file), overwrite))

    def extract(self, tensor: str, file: Union[str, os.PathLike[str]], overwrite: bool = False,
                progress: Optional[Progress] = None, **options: Unpack[_options.WorkOptions]) -> types.Extract:
        """Writes one tensor into a .npy, .safetensors or raw file, by the file's ending (shardscope.extract/1)."""
        return parsed(self._open.extract(words_of(options), self[tensor].name, os.fspath(file), overwrite, progress))

    def __repr__(self) -> str:
        if self._opened is None:
            return f"<shardscope.Checkpoint {self.path!r}, closed>"
        return f"<shardscope.Checkpoint {self.path!r} {self.format}, {len(self)} tensors>"

    def _repr_html_(self) -> str:
        from ._notebook import checkpoint_html

        return checkpoint_html(self)


def _everywhere(path: Union[str, os.PathLike[str]]) -> str:
    """A path that names the same in other directories; those of places with a scheme do."""
    text = os.fspath(path)
    return text if "://" in text else os.path.abspath(text)


def open_any(path: Union[str, os.PathLike[str]], options: dict[str, Any]) -> Optional[Checkpoint]:
    """As ``open``; None where it is the directory of a run, for functions that judge its steps."""
    words = words_of(options)
    found = _shardscope.open_any(words, os.fspath(path), program())
    return None if found is None else _told(found, (words, "", program(), "", [], []))


def opening(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the options that say how a checkpoint is opened."""
    names = {name for name, _, _ in _shardscope.options("open")}
    return {name: value for name, value in options.items() if name in names}


def _told(found: _shardscope.OpenCheckpoint, words: tuple[Any, ...]) -> Checkpoint:
    if found.chosen:
        import logging

        # Which step of a run is opened is said where nobody listens, too: on stderr.
        logging.getLogger("shardscope").warning("shardscope: opens %s: %s", found.path, found.chosen)
    return Checkpoint(found, words)


def open(path: Union[str, os.PathLike[str]], format: Optional[_options.ReadFormat] = None, *, map: Union[str, os.PathLike[str], None] = None,
         set: Union[str, Iterable[str]] = (), rename: Union[str, Iterable[str]] = (),
         **options: Unpack[_options.OpenOptions]) -> Checkpoint:
    """Opens a checkpoint of any format: a directory, a file, or ``ssh://host/path``. Reads its metadata only.

    format: take it as this format instead of detecting it. map: a recipe, a file or one of ``shardscope recipes``, whose
    tensors are made of those that are stored when they are read; set: ``NAME=VALUE`` for its parameters; rename:
    ``FROM=TO``, regular expressions for names. options: as of ``shardscope info``, such as ``variant="id=3"`` or
    ``tp_dim=["*.wq=0"]``. Raises Error; nothing that a pickle names is imported or called.
    """
    def listed(value: Union[str, Iterable[str]]) -> list[str]:
        return [value] if isinstance(value, str) else list(value)

    recipe = "" if map is None else os.fspath(map)
    if os.path.exists(recipe):
        recipe = os.path.abspath(recipe)
    words = (words_of({"format": format, **options}), os.fspath(path), program(), recipe, listed(set), listed(rename))
    return _told(_shardscope.open(*words), words)

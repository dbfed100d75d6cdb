"""Open checkpoints: a mapping from names to tensors that are read when asked for."""
from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from . import _dtypes, _shardscope
from ._documents import parsed
from ._errors import Error
from ._program import program
from ._validation import Validation

# Importing is quick: what few calls need is imported by them.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, Optional, Union

    Progress = Callable[[str, int, int, str], None]


_LARGE = 4 << 20  # bytes from which on memory in large pages is worth asking for


class Opaque:
    """A value that is no plain data, such as an object of a class: what it is and how it would be printed.

    Nothing of it was imported or called.
    """

    __slots__ = ("kind", "repr")

    def __init__(self, kind: str, repr: str) -> None:
        self.kind, self.repr = kind, repr

    def __repr__(self) -> str:
        return f"<opaque {self.kind}: {self.repr}>"


def words_of(options: Mapping[str, Any]) -> list[str]:
    """Options of the command line: ``weights_only=True`` is ``--weights-only``, a list repeats its option."""
    words = []
    for key, value in options.items():
        option = "--" + key.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(option)
            continue
        for item in [value] if isinstance(value, (str, int, float, os.PathLike)) else value:
            words.append(f"{option}={os.fspath(item) if isinstance(item, os.PathLike) else item}")
    return words


def _torch_empty(shape: Sequence[int], dtype: Any, pin_memory: bool = False, device: Any = None) -> Any:
    import torch

    made = torch.empty(shape, dtype=dtype, pin_memory=pin_memory, device="cpu" if device is None else device)
    size = made.numel() * made.element_size()
    if size >= _LARGE and not pin_memory and made.device.type == "cpu":
        _shardscope.use_large_pages(made.data_ptr(), size)
    return made


class Tensor:
    """A tensor of a checkpoint, of which nothing has been read yet.

    ``name``, ``shape`` (a tuple of ints), ``dtype`` (torch's name for it, such as ``"bfloat16"``), ``role``
    (``parameter``, ``buffer``, ``optimizer`` or ``other``), ``nbytes``, ``alias_of`` (the name of the same stored
    tensor, or None). It stays usable for as long as you keep it; the checkpoint's files must not change meanwhile.
    """

    __slots__ = ("_checkpoint", "_id", "name", "dtype", "shape", "role", "nbytes", "alias_of")

    def __init__(self, checkpoint: "Checkpoint", id: int) -> None:
        self._checkpoint, self._id = checkpoint, id
        self.name, self.dtype, self.shape, self.role, self.nbytes, self.alias_of = checkpoint._open.facts(id)

    def __repr__(self) -> str:
        return f"<shardscope.Tensor {self.name!r} {self.dtype} {list(self.shape)}>"

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        count = 1
        for length in self.shape:
            count *= length
        return count

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a tensor without dimensions")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        for i in range(len(self)):
            yield self[i]

    @property
    def path(self) -> tuple:
        """The keys and indices that lead to it in the nested state dict."""
        return self._checkpoint._open.path_of(self._id)

    @property
    def chunks(self) -> list[dict]:
        """Where it is stored: dicts with ``rank``, ``offsets`` and ``lengths`` (or ``flat``), ``file``, ``offset``
        and ``length`` (bytes of the stored entry)."""
        return parsed(self._checkpoint._open.document(self._id))["chunks"]

    @property
    def ranks(self) -> list[int]:
        """The ranks that hold some of it, in order."""
        return sorted({chunk["rank"] for chunk in self.chunks if chunk["rank"] is not None})

    @property
    def master(self) -> "Optional[Tensor]":
        """The fp32 original of a weight of fewer bits, where the optimizer's state holds one; else None."""
        id = self._checkpoint._open.master(self._id)
        return None if id < 0 else Tensor(self._checkpoint, id)

    # ---------------------------------------------------------------- reading

    def _region(self, key: Any) -> tuple[list[int], list[int], list[int], list[bool], list[int]]:
        """starts, counts and steps of what is read; which dimensions the result keeps (an int removes one); those of
        the result that are reversed afterwards."""
        if not isinstance(key, tuple):
            key = (key,)
        if sum(k is Ellipsis for k in key) > 1:
            raise IndexError("an index has at most one ellipsis")
        if any(k is None for k in key):
            raise IndexError("a tensor of a checkpoint takes ints, slices and an ellipsis; add dimensions to the result")
        missing = self.ndim - sum(k is not Ellipsis for k in key)
        if missing < 0:
            raise IndexError(f"too many indices: {self.name} has {self.ndim} dimensions")
        if Ellipsis in key:
            at = key.index(Ellipsis)
            key = key[:at] + (slice(None),) * missing + key[at + 1:]
        else:
            key += (slice(None),) * missing
        starts, counts, steps, kept, flipped = [], [], [], [], []
        for d, (index, length) in enumerate(zip(key, self.shape)):
            if isinstance(index, slice):
                start, stop, step = index.indices(length)
                count = len(range(start, stop, step))
                if step < 0:
                    start, step = start + (count - 1) * step, -step
                    flipped.append(sum(kept))
                if count == 0:
                    start, step = 0, 1
                elif count == 1:
                    step = 1
                kept.append(True)
            elif type(index).__name__ in ("bool", "bool_"):  # NumPy takes one as a mask
                raise TypeError("a tensor of a checkpoint takes ints, slices and an ellipsis, not "
                                + type(index).__name__)
            else:
                try:
                    start = index.__index__()
                except AttributeError:
                    raise TypeError(
                        "a tensor of a checkpoint takes ints, slices and an ellipsis, not "
                        + type(index).__name__) from None
                if not -length <= start < length:
                    raise IndexError(f"index {start} is outside of dimension {d}, which has {length}")
                start, count, step = start % length, 1, 1
                kept.append(False)
            starts.append(start)
            counts.append(count)
            steps.append(step)
        return starts, counts, steps, kept, flipped

    def _read_bytes(self, starts: list[int], counts: list[int], steps: list[int], address: int,
                    strides: Optional[list[int]] = None, threads: int = 0) -> int:
        if strides is None:
            strides, stride = [], 1
            for count in reversed(counts):
                strides.insert(0, stride)
                stride *= count
        read = (self._id, starts, counts, steps, address, strides)
        return self._checkpoint._open.read([read], threads, None)

    def numpy(self, key: Any = Ellipsis, threads: int = 0) -> Any:
        """The tensor, or the slice ``key`` of it, as a new array; only its bytes are read.

        bfloat16 and float8 need the package ml_dtypes. Raises Error; IndexError for indices outside of the shape.
        """
        import numpy

        starts, counts, steps, kept, flipped = self._region(key)
        array = numpy.empty(tuple(counts), _dtypes.numpy_dtype(self.dtype))
        self._read_bytes(starts, counts, steps, array.ctypes.data, threads=threads)
        array = array.reshape([count for count, keep in zip(counts, kept) if keep])
        for axis in flipped:
            array = numpy.flip(array, axis)
        return array

    def __getitem__(self, key: Any) -> Any:
        """``t[128:256, ::2]``: the slice as an array of NumPy; only its bytes are read."""
        array = self.numpy(key)
        return array[()] if array.ndim == 0 else array

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Any:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def raw(self) -> bytearray:
        """All elements as bytes, row-major and little-endian, whatever the dtype."""
        import ctypes

        data = bytearray(self.nbytes)
        if data:
            address = ctypes.addressof(ctypes.c_char.from_buffer(data))
            self._read_bytes([0] * self.ndim, list(self.shape), [1] * self.ndim, address)
        return data

    def torch(self, key: Any = Ellipsis, out: Any = None, pin_memory: bool = False, threads: int = 0,
              device: Any = None) -> Any:
        """The tensor, or the slice ``key`` of it, as a tensor of torch on ``device`` (None: the processor), in pinned
        memory of the processor if asked for.

        out: is filled and returned: of the same shape and dtype, any strides, on any device, pinned or not. The bytes
        go straight into its memory; to another device through at most 64 MiB.
        """
        import torch

        from ._reads import Reads, as_whole, copy

        starts, counts, steps, kept, flipped = self._region(key)
        result = [count for count, keep in zip(counts, kept) if keep]
        dtype = _dtypes.torch_dtype(self.dtype)
        if out is None:
            made = _torch_empty(counts, dtype, pin_memory, device)
            reads = Reads(self._checkpoint)
            reads.add(self, starts, counts, steps, made)
            reads.run(threads)
            made = made.reshape(result)
            return torch.flip(as_whole(made), flipped).view(dtype) if flipped else made
        if list(out.shape) != result or out.dtype != dtype:
            raise Error("usage", f"out has {out.dtype} {list(out.shape)}, the tensor {dtype} {result}",
                        tensor=self.name)
        into = out.detach()
        if flipped:
            copy(into, self.torch(key, threads=threads, device=into.device))
            return out
        if not all(kept):
            into = into[tuple(slice(None) if keep else None for keep in kept)]
        reads = Reads(self._checkpoint)
        reads.add(self, starts, counts, steps, into)
        reads.run(threads)
        return out


class Objects(Mapping):
    """The values of a checkpoint that are no tensors, by name: plain data as Python's own, all else as Opaque."""

    def __init__(self, checkpoint: "Checkpoint") -> None:
        self._open = checkpoint._open
        self._ids = {name: id for id, name in enumerate(self._open.object_names())}

    def __getitem__(self, name: str) -> Any:
        return self._open.object_value(self._ids[name], Opaque)

    def path_of(self, name: str) -> tuple:
        return self._open.object_path(self._ids[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)


class Checkpoint(Mapping):
    """An open checkpoint: a mapping from names to ``Tensor``; made by ``shardscope.open``.

    Opening has read its metadata only. It may be used by several threads. In a process that was forked from the one
    that opened it, every use raises Error.
    """

    def __init__(self, opened: Any, words: list[str]) -> None:
        self._open, self._words = opened, words
        self._names: Optional[list[str]] = None

    @property
    def path(self) -> str:
        return self._open.path

    @property
    def format(self) -> str:
        """``"dcp"``, ``"safetensors"``, ... as in ``--format``."""
        return self._open.format

    @property
    def mesh(self) -> Optional[dict]:
        """The ranks as a grid: ``{"axes": [{"name", "size"}], "source", "evidence"}``, or None."""
        return self.info()["mesh"]

    def info(self) -> dict:
        """What ``shardscope info --json`` says (shardscope.info/1)."""
        return parsed(self._open.info())

    @property
    def objects(self) -> Objects:
        """The values that are no tensors."""
        return Objects(self)

    def __len__(self) -> int:
        self._open.check()
        return self._open.count()

    def __iter__(self) -> Iterator[str]:
        self._open.check()
        if self._names is None:
            self._names = self._open.names()
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        self._open.check()
        return isinstance(name, str) and self._open.find(name) >= 0

    def __getitem__(self, name: str) -> Tensor:
        id = self._open.find(name)
        if id < 0:
            raise KeyError(name)
        return Tensor(self, id)

    def select(self, patterns: Union[str, Iterable[str], None] = None) -> list[str]:
        """Names that match any of the patterns (``*`` and ``?``), in the checkpoint's order; None: all.

        A pattern without a match is an Error."""
        if patterns is None:
            return list(self)
        import fnmatch

        patterns = [patterns] if isinstance(patterns, str) else list(patterns)
        chosen = set()
        for pattern in patterns:
            found = [pattern] if pattern in self else fnmatch.filter(self, pattern)
            if not found:
                raise Error("not-found", f"no tensor matches '{pattern}'", file=self.path)
            chosen.update(found)
        return [name for name in self if name in chosen]

    def torch(self, patterns: Union[str, Iterable[str], None] = None, out: Optional[Mapping[str, Any]] = None,
              pin_memory: bool = False, mmap: bool = False, threads: int = 0,
              progress: Optional[Progress] = None, device: Any = None) -> dict[str, Any]:
        """Tensors of torch by name, read at the same time.

        patterns: names, or patterns with ``*`` and ``?``; None: all. out: tensors to fill, by name, on any device;
        the others are made on ``device`` (None: the processor). Names of one stored tensor share their memory, as they
        did when they were saved.
        progress(phase, bytes_done, bytes_total, tensor) is called some times a second.
        mmap: tensors that are whole in one file are that file's pages, as ``safetensors.torch.load_file`` and
        ``torch.load(mmap=True)`` make them, and are read when they are used; writing to them does not change the
        file. For files that nobody changes meanwhile: to use a tensor of a file that was truncated ends the process.
        """
        from ._reads import Reads

        result: dict[str, Any] = {}
        maps: dict[str, Any] = {}
        reads = Reads(self)
        for name in self.select(patterns):
            tensor = self[name]
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
                given = _torch_empty(tensor.shape, dtype, pin_memory, device)
            elif tuple(given.shape) != tensor.shape or given.dtype != dtype:
                raise Error("usage", f"out has {given.dtype} {list(given.shape)}, the tensor {dtype} "
                                     f"{list(tensor.shape)}", tensor=name)
            result[name] = given
            reads.add(tensor, [0] * tensor.ndim, list(tensor.shape), [1] * tensor.ndim, given.detach())
        reads.run(threads, progress)
        return result

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
            raise Error("changed" if isinstance(error, ValueError) else "io", f"cannot be mapped: {error}", file=path) from None
        finally:
            os.close(file)
        begin = offset // mmap.PAGESIZE * mmap.PAGESIZE
        maps[path].madvise(mmap.MADV_WILLNEED, begin, offset + tensor.nbytes - begin)
        if offset % dtype.itemsize:
            return None
        return torch.frombuffer(maps[path], dtype=dtype, count=tensor.size, offset=offset).view(tensor.shape)

    def validate(self, level: str = "files", expect: Union[str, os.PathLike, None] = None, examples: int = 100,
                 progress: Optional[Progress] = None, **options: Any) -> Validation:
        """Is it whole and sane? level: ``metadata``, ``files`` or ``values`` (reads every byte).

        expect: another checkpoint whose names, shapes and dtypes this one must have. options: as of
        ``shardscope validate``, such as ``memory="2GiB"``, ``threads=4``; of level ``values`` also ``on="local:4"`` and
        ``records=``, for workers that share the reading.
        """
        return Validation(self, self._open.validate(words_of(options), level, "" if expect is None else os.fspath(expect),
                                                    examples, program(), progress))

    def ready(self, level: str = "files", progress: Optional[Progress] = None, **options: Any) -> dict:
        """May a run resume from it? The ten lines of ``shardscope ready`` (shardscope.ready/1): ``resumes``, ``words``,
        ``lines`` with ``id``, ``mark`` (``yes``, ``no``, ``none``), ``text`` and ``evidence``.

        level and options: as of ``validate``.
        """
        return parsed(self._open.ready(words_of(options), level, progress))

    def digest(self, pattern: str = "*", algorithm: str = "tile", progress: Optional[Progress] = None,
               **options: Any) -> dict:
        """A digest of each tensor whose name matches, which depends on neither format nor sharding (shardscope.digest/1).

        algorithm: ``tile``, the fastest, or ``sha256`` or ``crc32`` of the row-major little-endian bytes. options: as of
        ``validate``, ``on=`` and ``records=`` among them.
        """
        return parsed(self._open.digest(words_of(options), pattern, algorithm, program(), progress))

    def index(self, file: Union[str, os.PathLike, None] = None, overwrite: bool = False) -> dict:
        """Writes what the metadata says into one small file that opens like the checkpoint, anywhere
        (shardscope.index/1). file: None is the checkpoint's name with ``.ssidx``, in the current directory."""
        return parsed(self._open.index("" if file is None else os.fspath(file), overwrite))

    def extract(self, tensor: str, file: Union[str, os.PathLike], overwrite: bool = False,
                progress: Optional[Progress] = None, **options: Any) -> dict:
        """Writes one tensor into a .npy, .safetensors or raw file, by the file's ending (shardscope.extract/1)."""
        return parsed(self._open.extract(words_of(options), self[tensor].name, os.fspath(file), overwrite, progress))

    def __repr__(self) -> str:
        return f"<shardscope.Checkpoint {self.path!r} {self.format}, {len(self)} tensors>"

    def _repr_html_(self) -> str:
        from ._notebook import checkpoint_html

        return checkpoint_html(self)


def open_any(path: Union[str, os.PathLike], options: dict[str, Any]) -> Optional[Checkpoint]:
    """As ``open``; None where it is the directory of a run, for functions that judge its steps."""
    found = _shardscope.open_any(words_of(options), os.fspath(path), program())
    return None if found is None else _told(found, words_of(options))


def opening(options: dict[str, Any]) -> dict[str, Any]:
    """Those of the options that say how a checkpoint is opened."""
    names = {"threads", "memory", "io", "remote_program", *_shardscope.opening_options()}
    return {name: value for name, value in options.items() if name in names}


def _told(found: Any, words: list[str]) -> Checkpoint:
    if found.chosen:
        print(f"shardscope: opens {found.path}: {found.chosen}", file=sys.stderr)
    return Checkpoint(found, words)


def open(path: Union[str, os.PathLike], format: Optional[str] = None, *, map: Optional[str] = None,
         set: Union[str, Iterable[str]] = (), rename: Union[str, Iterable[str]] = (), **options: Any) -> Checkpoint:
    """Opens a checkpoint of any format: a directory, a file, or ``ssh://host/path``. Reads its metadata only.

    format: take it as this format instead of detecting it. map: a recipe, a file or one of ``shardscope recipes``, whose
    tensors are made of those that are stored when they are read; set: ``NAME=VALUE`` for its parameters; rename:
    ``FROM=TO``, regular expressions for names. options: as of ``shardscope info``, such as ``variant="id=3"`` or
    ``tp_dim=["*.wq=0"]``. Raises Error; nothing that a pickle names is imported or called.
    """
    def listed(value: Union[str, Iterable[str]]) -> list[str]:
        return [value] if isinstance(value, str) else list(value)

    place = os.fspath(path)
    words = words_of({"format": format, **options})
    return _told(_shardscope.open(words, place, program(), "" if map is None else os.fspath(map), listed(set),
                                  listed(rename)), words)

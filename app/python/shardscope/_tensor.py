"""Tensors that are read when they are asked for, in parts or whole."""
from __future__ import annotations

import math
import sys

from . import _dtypes, _shardscope
from ._documents import parsed
from ._errors import Error, WrongValue, no_package
from ._indexing import select
from ._words import words_of

# Importing is quick: what few calls need is imported by them.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence
    from typing import Any, Optional, Union

    from typing_extensions import Unpack

    from . import _options, types
    from ._checkpoint import Checkpoint
    from ._view import View
    from ._words import Progress

_LARGE = 4 << 20  # bytes from which on memory in large pages is worth asking for
_ROWS = 16 << 20  # bytes of rows that are read at a time
_CPU = (1, 0)  # as DLPack names it


def torch_empty(shape: Sequence[int], dtype: Any, pin_memory: bool = False, device: Any = None) -> Any:
    import torch

    made = torch.empty(shape, dtype=dtype, pin_memory=pin_memory, device="cpu" if device is None else device)
    size = made.numel() * made.element_size()
    if size >= _LARGE and not pin_memory and made.device.type == "cpu":
        _shardscope.use_large_pages(made.data_ptr(), size)
    return made


def _row_major(counts: Sequence[int]) -> list[int]:
    strides: list[int] = []
    stride = 1
    for count in reversed(counts):
        strides.insert(0, stride)
        stride *= count
    return strides


def _of_pickle(checkpoint: "Checkpoint", name: str, is_master: bool) -> "Optional[Tensor]":
    tensor = checkpoint[name]
    return tensor.master if is_master else tensor


class Tensor:
    """A tensor of a checkpoint, of which nothing has been read yet.

    ``name``, ``shape`` (a tuple of ints), ``dtype`` (torch's name for it, such as ``"bfloat16"``), ``role``
    (``parameter``, ``buffer``, ``optimizer`` or ``other``), ``nbytes``, ``alias_of`` (the name of the same stored
    tensor, or None). It stays usable for as long as you keep it, until the checkpoint is closed; the checkpoint's files must
    not change meanwhile. It can be pickled: where it arrives, the checkpoint is opened again.
    """

    __slots__ = ("_checkpoint", "_process", "_id", "name", "dtype", "shape", "role", "nbytes", "alias_of")

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: types.Role
    nbytes: int
    alias_of: Optional[str]

    def __init__(self, checkpoint: "Checkpoint", id: int) -> None:
        self._checkpoint, self._id = checkpoint, id
        opened = checkpoint._open
        self._process = checkpoint._process
        self.name, self.dtype, self.shape, self.role, self.nbytes, self.alias_of = opened.facts(id)

    def __reduce__(self) -> tuple[Any, ...]:
        # Masters of what a recipe makes have the names of their weights.
        return _of_pickle, (self._checkpoint, self.name, self._id >= len(self._checkpoint))

    def __repr__(self) -> str:
        return f"<shardscope.Tensor {self.name!r} {self.dtype} {list(self.shape)}>"

    @property
    def _open(self) -> _shardscope.OpenCheckpoint:
        """The open checkpoint, in which this is the tensor that it was."""
        opened = self._checkpoint._open
        if self._process != self._checkpoint._process:  # it was opened again, after a fork
            if opened.facts(self._id)[:3] != (self.name, self.dtype, self.shape):
                raise Error("changed", "is another checkpoint than the one that was opened", file=opened.path, tensor=self.name)
            self._process = self._checkpoint._process
        return opened

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a tensor without dimensions")
        return self.shape[0]

    def __bool__(self) -> bool:
        """It is there: ``if tensor.master``. What it holds has to be read."""
        return True

    def __iter__(self) -> Iterator[Any]:
        """Its rows as arrays of NumPy, some of which are read at a time."""
        rows = max(_ROWS * len(self) // max(self.nbytes, 1), 1)
        for begin in range(0, len(self), rows):
            yield from self.numpy(slice(begin, begin + rows))

    @property
    def path(self) -> tuple[Any, ...]:
        """The keys and indices that lead to it in the nested state dict."""
        return self._open.path_of(self._id)

    @property
    def chunks(self) -> list[types.Chunk]:
        """Where it is stored: dicts with ``rank``, ``offsets`` and ``lengths`` (or ``flat``), ``file``, ``offset``
        and ``length`` (bytes of the stored entry)."""
        return parsed(self._open.document(self._id))["chunks"]

    @property
    def ranks(self) -> list[int]:
        """The ranks that hold some of it, in order."""
        return self._open.ranks(self._id)

    @property
    def master(self) -> "Optional[Tensor]":
        """The fp32 original of a weight of fewer bits, where the optimizer's state holds one; else None."""
        id = self._open.master(self._id)
        return None if id < 0 else Tensor(self._checkpoint, id)

    def stats(self, progress: Optional[Progress] = None, **options: Unpack[_options.WorkOptions]) -> types.Statistics:
        """Reads it: ``min``, ``max``, ``mean``, ``std``, ``nan``, ``inf``, ``zero``, ``elements`` and a ``histogram``, as
        ``shardscope show --values`` says them, in bounded memory. options: ``threads=``, ``memory=``, ``io=``."""
        return parsed(self._open.show(words_of(options), self._id, progress))["values"]

    def extract(self, file: Union[str, os.PathLike[str]], overwrite: bool = False, progress: Optional[Progress] = None,
                **options: Unpack[_options.WorkOptions]) -> types.Extract:
        """Writes it into a file; see Checkpoint.extract."""
        return self._checkpoint.extract(self.name, file, overwrite, progress, **options)

    # ---------------------------------------------------------------- reading

    def numpy(self, key: Any = Ellipsis, threads: int = 0) -> Any:
        """The tensor, or what the index ``key`` takes of it, as a new array; only its bytes are read. An index is what NumPy
        takes: integers, slices, an ellipsis, lists of integers and masks.

        bfloat16 and float8 need the package ml_dtypes. Raises Error; IndexError for indices outside of the shape.
        """
        try:
            import numpy
        except ImportError:
            raise no_package("NumPy", "numpy", "reading into an array") from None

        selected = select(key, self.shape, self.name)
        array = numpy.empty(selected.shape, _dtypes.numpy_dtype(self.dtype))
        strides = _row_major(selected.shape)
        self._open.read([(self._id, starts, counts, steps,
                          array.ctypes.data + array.itemsize * sum(a * stride for a, stride in zip(at, strides)), strides)
                         for starts, counts, steps, at in selected.regions], threads, None)
        return array[selected.index + (Ellipsis,)]

    def __getitem__(self, key: Any) -> Any:
        """``t[128:256, ::2]``: what the index takes as an array of NumPy; only its bytes are read."""
        array = self.numpy(key)
        return array[()] if array.ndim == 0 else array

    @property
    def view(self) -> View:
        """The tensor as a ``View``, whose indices read nothing: ``t.view[128:256].T`` is read by ``.numpy()`` or ``.torch()``."""
        from ._view import View

        return View(self)

    def jax(self, sharding: Any = None, threads: int = 0) -> Any:
        """The tensor as an array of jax. sharding: a ``jax.sharding.Sharding``; each device of this process gets its part, only
        those parts are read, and what several devices hold alike once. None: whole, on jax's default device."""
        from ._jax import read

        return read(self, sharding, threads)

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Any:
        if copy is False:
            raise WrongValue("usage", "a tensor of a checkpoint cannot be an array without a copy", tensor=self.name)
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU

    def __dlpack__(self, *, stream: Any = None, max_version: Optional[tuple[int, int]] = None,
                   dl_device: Optional[tuple[int, int]] = None, copy: Optional[bool] = None) -> Any:
        """Reads it, for ``torch.as_tensor``, ``torch.from_dlpack``, ``numpy.from_dlpack``, ``jax.dlpack.from_dlpack``."""
        if copy is False or (dl_device is not None and tuple(dl_device) != _CPU):
            raise BufferError("a tensor of a checkpoint is read into new memory of the processor")
        # torch has dtypes that NumPy cannot hand on.
        made = self.torch() if "torch" in sys.modules else self.numpy()
        try:
            return made.__dlpack__(max_version=max_version)
        except TypeError:  # before DLPack 1.0
            return made.__dlpack__()

    def raw(self) -> bytearray:
        """All elements as bytes, row-major and little-endian, whatever the dtype."""
        import ctypes

        data = bytearray(self.nbytes)
        if data:
            address = ctypes.addressof(ctypes.c_char.from_buffer(data))
            counts = list(self.shape)
            self._open.read([(self._id, [0] * self.ndim, counts, [1] * self.ndim, address, _row_major(counts))], 0, None)
        return data

    def torch(self, key: Any = Ellipsis, out: Any = None, pin_memory: bool = False, threads: int = 0,
              device: Any = None) -> Any:
        """The tensor, or what the index ``key`` takes of it, as a tensor of torch on ``device`` (None: the processor), in
        pinned memory of the processor if asked for.

        out: is filled and returned: of the same shape and dtype, any strides, on any device, pinned or not. The bytes
        go straight into its memory; to another device through at most 64 MiB.
        """
        from ._reads import Reads, copy, taken

        selected = select(key, self.shape, self.name)
        dtype = _dtypes.torch_dtype(self.dtype)
        into = None
        if out is not None and selected.plain and not selected.flipped:
            kept = [count for count, keep in zip(selected.shape, selected.kept) if keep]
            self._check_out(out, dtype, kept)
            into = out.detach()[tuple(slice(None) if keep else None for keep in selected.kept)]
        made = into if into is not None else torch_empty(selected.shape, dtype, pin_memory,
                                                         device if out is None else out.device)
        reads = Reads(self._checkpoint)
        for starts, counts, steps, at in selected.regions:
            part = made
            for d, (begin, count) in enumerate(zip(at, counts)):
                part = part.narrow(d, begin, count)
            reads.add(self, starts, counts, steps, part)
        reads.run(threads)
        if into is not None:
            return out
        result = taken(made, selected)
        if out is None:
            return result
        self._check_out(out, dtype, list(result.shape))
        copy(out.detach(), result)
        return out

    def _check_out(self, out: Any, dtype: Any, shape: list[int]) -> None:
        if list(out.shape) != shape or out.dtype != dtype:
            raise WrongValue("usage", f"out has {out.dtype} {list(out.shape)}, the tensor {dtype} {shape}", tensor=self.name)

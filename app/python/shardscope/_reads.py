"""Reads into tensors of torch, on any device. Imports torch: only for what needs it."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, NamedTuple, Optional

import torch

from . import _dtypes
from ._progress import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._indexing import Selection
    from ._tensor import Tensor
    from ._words import Progress

# What is read before it is copied to another device or dtype: one half, while the other is copied.
_STAGED_BYTES = 64 << 20
_ALIGNMENT = 64
_WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def as_whole(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as whole numbers: torch can neither copy nor flip some dtypes (bits16, float4, float8)."""
    whole = _WHOLE.get(tensor.element_size())
    return tensor if whole is None else tensor.view(whole)


def copy(target: torch.Tensor, read: torch.Tensor, non_blocking: bool = False) -> None:
    """Copies into a tensor of any dtype, on any device."""
    if target.dtype == read.dtype and not target.is_conj() and not target.is_neg():
        target, read = as_whole(target), as_whole(read)
    target.copy_(read, non_blocking=non_blocking)


def taken(read: torch.Tensor, selected: Selection) -> torch.Tensor:
    """What an index takes of what was read for it."""
    if selected.flipped:
        read = torch.flip(as_whole(read), selected.flipped).view(read.dtype)
    index = tuple(slice(None) if isinstance(part, slice) else part if isinstance(part, int)
                  else torch.from_numpy(part).to(read.device) for part in selected.index)
    return read[index] if selected.plain else as_whole(read)[index].view(read.dtype)


class _Part(NamedTuple):
    """Some of a region that is read together: ``target`` has the shape ``counts``."""

    id: int
    dtype: torch.dtype
    starts: list[int]
    counts: list[int]
    steps: list[int]
    target: torch.Tensor

    @property
    def nbytes(self) -> int:
        return self.target.numel() * self.dtype.itemsize

    def cut(self, dimension: int = 0) -> Iterator[_Part]:
        """In parts that fit in half of what is staged, cut along the first dimensions."""
        most = _STAGED_BYTES // 2
        if dimension == len(self.counts) or self.nbytes <= most:
            yield self
            return
        count = self.counts[dimension]
        rows = max(most // (self.nbytes // count), 1)
        for begin in range(0, count, rows):
            starts, counts = list(self.starts), list(self.counts)
            starts[dimension] += begin * self.steps[dimension]
            counts[dimension] = min(rows, count - begin)
            target = self.target.narrow(dimension, begin, counts[dimension])
            part = self._replace(starts=starts, counts=counts, target=target)
            yield from part.cut(dimension + 1 if counts[dimension] == 1 else dimension)


class Reads:
    """Regions of tensors that are read together.

    They are read straight into the memory of targets on the processor; for another device or dtype through at most
    64 MiB of memory of the processor. That is pinned for CUDA, which copies one part while the next is read.
    """

    def __init__(self, checkpoint: Any) -> None:
        self._open = checkpoint._open
        self._direct: list[tuple[Any, ...]] = []
        self._direct_bytes = 0
        self._staged: list[_Part] = []
        self._after: list[Callable[[], None]] = []

    def add(self, tensor: Tensor, starts: list[int], counts: list[int], steps: list[int], target: torch.Tensor,
            then: Optional[Callable[[], None]] = None) -> None:
        """A region, and the tensor of torch that it fills, of the shape ``counts``. then: called when all are."""
        if then is not None:
            self._after.append(then)
        part = _Part(tensor._id, _dtypes.torch_dtype(tensor.dtype), starts, counts, steps, target)
        strided = target.layout == torch.strided
        if (target.dtype == part.dtype and target.device.type == "cpu" and strided and not target.is_conj()
                and not target.is_neg()):
            self._direct.append((part.id, starts, counts, steps, target.data_ptr(), list(target.stride())))
            self._direct_bytes += part.nbytes
        elif target.numel():
            self._staged.extend(part.cut() if strided else [part])

    def run(self, threads: int = 0, progress: Optional[Progress] = None) -> None:
        """Reads all of them. Raises Error, and what ``progress`` raises."""
        if not self._staged:
            self._open.read(self._direct, threads, progress)
        else:
            self._run_staged(threads, progress)
        for then in self._after:
            then()

    def _run_staged(self, threads: int, progress: Optional[Progress]) -> None:
        told: Any = shown(progress) if isinstance(progress, str) else progress
        total = self._direct_bytes + sum(part.nbytes for part in self._staged)
        before = 0

        def read(reads: list[tuple[Any, ...]], nbytes: int) -> None:
            nonlocal before

            def report(phase: str, done: int, _: int, name: str) -> None:
                told(phase, before + min(done, nbytes), total, name)

            self._open.read(reads, threads, report if told is not None else None)
            before += nbytes

        if self._direct:
            read(self._direct, self._direct_bytes)
        halves: list[Any] = [None, None]
        copied: list[Any] = [None, None]  # events; None where nothing is under way
        for turn, group in enumerate(self._groups()):
            half, device = turn % 2, group[0][1].target.device
            if copied[half] is not None:
                copied[half].synchronize()
            cuda = device.type == "cuda"
            last, part = group[-1]
            size = last + part.nbytes
            if halves[half] is None or halves[half].numel() < size or (cuda and not halves[half].is_pinned()):
                halves[half] = _bytes(size, cuda)
            reads, copies = [], []
            for begin, part in group:
                staged = halves[half][begin:begin + part.nbytes].view(part.dtype).view(part.counts)
                reads.append((part.id, part.starts, part.counts, part.steps, staged.data_ptr(), list(staged.stride())))
                copies.append((part.target, staged))
            read(reads, sum(part.nbytes for _, part in group))
            for target, staged in copies:
                copy(target, staged, cuda)
            copied[half] = torch.cuda.current_stream(device).record_event() if cuda else None
        for event in copied:
            if event is not None:
                event.synchronize()

    def _groups(self) -> Iterator[list[tuple[int, _Part]]]:
        """What is read at a time, for one device: parts, and where in the memory that is staged."""
        group: list[tuple[int, _Part]] = []
        begin = 0
        for part in self._staged:
            if group and (begin + part.nbytes > _STAGED_BYTES // 2 or group[0][1].target.device != part.target.device):
                yield group
                group, begin = [], 0
            group.append((begin, part))
            begin += -(-part.nbytes // _ALIGNMENT) * _ALIGNMENT
        if group:
            yield group


def _bytes(size: int, pinned: bool) -> torch.Tensor:
    if pinned:
        try:
            return torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=True)
        except RuntimeError:
            pass  # no more of it: the copies take longer
    return torch.empty(size, dtype=torch.uint8, device="cpu")

"""Reads into tensors of torch, on any device. Imports torch: only for what needs it."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, Optional

import torch

from . import _dtypes

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._checkpoint import Progress, Tensor

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


class Reads:
    """Regions of tensors that are read together.

    They are read straight into the memory of targets on the processor; for another device or dtype through at most
    64 MiB of memory of the processor. That is pinned for CUDA, which copies one part while the next is read.
    """

    def __init__(self, checkpoint: Any) -> None:
        self._open = checkpoint._open
        self._direct: list[tuple] = []
        self._staged: list[tuple] = []
        self._after: list[Callable[[], None]] = []
        self._bytes = 0

    def add(self, tensor: Tensor, starts: list[int], counts: list[int], steps: list[int], target: torch.Tensor,
            then: Optional[Callable[[], None]] = None) -> None:
        """A region and the tensor of torch that it fills, which has the shape ``counts``. then: called when it is filled."""
        dtype = _dtypes.torch_dtype(tensor.dtype)
        if then is not None:
            self._after.append(then)
        self._bytes += target.numel() * dtype.itemsize
        strided = target.layout == torch.strided
        if target.dtype == dtype and target.device.type == "cpu" and strided and not target.is_conj() and not target.is_neg():
            self._direct.append((tensor._id, starts, counts, steps, target.data_ptr(), list(target.stride())))
        elif target.numel():
            self._staged.extend((tensor._id, dtype, *part)
                                for part in _parts(starts, counts, steps, target, dtype.itemsize, 0 if strided else None))

    def run(self, threads: int = 0, progress: Optional[Progress] = None) -> None:
        """Reads all of them. Raises Error, and what ``progress`` raises."""
        if not self._staged:
            self._open.read(self._direct, threads, progress)
        else:
            self._run_staged(threads, progress)
        for then in self._after:
            then()

    def _run_staged(self, threads: int, progress: Optional[Progress]) -> None:
        groups = list(self._groups())
        before = 0

        def counted(phase: str, done: int, total: int, name: str) -> None:
            assert progress is not None
            progress(phase, min(before + done, self._bytes), self._bytes, name)

        report = None if progress is None else counted
        if self._direct:
            before = self._open.read(self._direct, threads, report)
        halves: list[Any] = [None, None]
        copied: list[Any] = [None, None]
        for turn, (group, size) in enumerate(groups):
            half = turn % 2
            device = group[0][5].device
            cuda = device.type == "cuda"
            if copied[half] is not None:
                copied[half].synchronize()
            if halves[half] is None or halves[half].numel() < size or (cuda and not halves[half].is_pinned()):
                halves[half] = _bytes(max(size, _STAGED_BYTES // 2 if len(groups) > 1 else 0), cuda)
            at, reads, copies = 0, [], []
            for id, dtype, starts, counts, steps, target in group:
                end = at + target.numel() * dtype.itemsize
                read = halves[half][at:end].view(dtype).view(counts)
                reads.append((id, starts, counts, steps, read.data_ptr(), list(read.stride())))
                copies.append((target, read))
                at = -(-end // _ALIGNMENT) * _ALIGNMENT
            before += self._open.read(reads, threads, report)
            for target, read in copies:
                copy(target, read, cuda)
            copied[half] = torch.cuda.current_stream(device).record_event() if cuda else None
        for event in copied:
            if event is not None:
                event.synchronize()

    def _groups(self) -> Iterator[tuple[list[tuple], int]]:
        """What is read at a time, for one device, and its bytes."""
        group: list[tuple] = []
        size = 0
        for part in self._staged:
            own = -(-part[5].numel() * part[1].itemsize // _ALIGNMENT) * _ALIGNMENT
            if group and (size + own > _STAGED_BYTES // 2 or group[0][5].device != part[5].device):
                yield group, size
                group, size = [], 0
            group.append(part)
            size += own
        if group:
            yield group, size


def _parts(starts: list[int], counts: list[int], steps: list[int], target: torch.Tensor, itemsize: int,
           dimension: Optional[int]) -> Iterator[tuple]:
    """A region in parts that fit in half of what is staged, cut along its first dimensions; None: not to be cut."""
    most = _STAGED_BYTES // 2
    if dimension is None or dimension == len(counts) or target.numel() * itemsize <= most:
        yield starts, counts, steps, target
        return
    row = target.numel() // counts[dimension] * itemsize
    rows = max(most // row, 1)
    for begin in range(0, counts[dimension], rows):
        count = min(rows, counts[dimension] - begin)
        first, some = list(starts), list(counts)
        first[dimension] += begin * steps[dimension]
        some[dimension] = count
        part = target.narrow(dimension, begin, count)
        yield from _parts(first, some, steps, part, itemsize, dimension + 1 if count == 1 else dimension)


def _bytes(size: int, pinned: bool) -> torch.Tensor:
    if pinned:
        try:
            return torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=True)
        except RuntimeError:
            pass  # no more of it: the copies take longer
    return torch.empty(size, dtype=torch.uint8, device="cpu")

"""What an index of a tensor stands for: what is read of it, and what is then taken from that."""
from __future__ import annotations

from ._errors import OutOfRange, WrongType, no_package

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    # What is read together: starts, counts and steps along each dimension, and where in what is read.
    Region = tuple[list[int], list[int], list[int], list[int]]

_MOST_REGIONS = 1 << 20  # more are read with what is between them


class Selection:
    """``regions`` are read into an array of ``shape``, of which ``index`` takes the result; ``plain`` where it takes views."""

    def __init__(self, shape: list[int], regions: list[Region], index: tuple[Any, ...], plain: bool) -> None:
        self.shape, self.regions, self.index, self.plain = shape, regions, index, plain

    @property
    def kept(self) -> list[bool]:
        """Dimensions that the result has, too; of plain ones."""
        return [isinstance(part, slice) for part in self.index]

    @property
    def flipped(self) -> list[int]:
        """Dimensions that the result has in reverse."""
        return [d for d, part in enumerate(self.index) if isinstance(part, slice) and part.step == -1]


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise no_package("NumPy", "numpy", "an index with a list or a mask") from None
    return numpy


def _is_list(part: Any) -> bool:
    """Several indices along a dimension, or a mask; not one index."""
    return isinstance(part, (list, range)) or getattr(part, "ndim", 0) > 0


def _wrong(part: Any) -> WrongType:
    return WrongType("usage", "a tensor of a checkpoint takes integers, slices, an ellipsis, lists of integers and masks, not "
                     + type(part).__name__)


def _lists(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same with every list as an array of integers; a mask is one for each of its dimensions."""
    parts: list[Any] = []
    for part in key:
        if not _is_list(part):
            parts.append(part)
            continue
        array = _numpy().asarray(part)
        if array.dtype.kind == "b":
            parts.extend(_Mask(array, d) for d in range(array.ndim))
        elif array.dtype.kind in "iu" or array.size == 0:
            parts.append(array.astype("int64"))
        else:
            raise _wrong(part)
    return tuple(parts)


class _Mask:
    """One dimension of a mask, of which the length is to be checked."""

    def __init__(self, mask: Any, dimension: int) -> None:
        self.length = mask.shape[dimension]
        self.indices = mask.nonzero()[dimension]


def _expanded(key: Any, ndim: int, name: str) -> tuple[Any, ...]:
    """One part for each dimension."""
    key = key if isinstance(key, tuple) else (key,)
    key = _lists(key)
    if any(part is None for part in key):
        raise OutOfRange("usage", "a tensor of a checkpoint has the dimensions that it has; add some to the result", tensor=name)
    dots = [at for at, part in enumerate(key) if part is Ellipsis]
    if len(dots) > 1:
        raise OutOfRange("usage", "an index has at most one ellipsis", tensor=name)
    missing = ndim - (len(key) - len(dots))
    if missing < 0:
        raise OutOfRange("usage", f"too many indices: {name} has {ndim} dimensions", tensor=name)
    at = dots[0] if dots else len(key)
    return key[:at] + (slice(None),) * missing + key[at + len(dots):]


def _one(part: Any, length: int, dimension: int) -> int:
    if type(part).__name__ in ("bool", "bool_"):  # NumPy takes one as a mask
        raise _wrong(part)
    try:
        start = part.__index__()
    except (AttributeError, TypeError):
        raise _wrong(part) from None
    if not -length <= start < length:
        raise OutOfRange("usage", f"index {start} is outside of dimension {dimension}, which has {length}")
    return start % length


def _several(part: Any, length: int, dimension: int) -> tuple[list[tuple[int, int]], Any]:
    """Runs (first index, count) that hold all of the indices, and where they are in what is read."""
    numpy = _numpy()
    if isinstance(part, _Mask):
        if part.length != length:
            raise OutOfRange("usage", f"the mask has {part.length} along dimension {dimension}, which has {length}")
        part = part.indices
    outside = part[(part < -length) | (part >= length)]
    if outside.size:
        raise OutOfRange("usage", f"index {outside.flat[0]} is outside of dimension {dimension}, which has {length}")
    wanted, where = numpy.unique(numpy.where(part < 0, part + length, part), return_inverse=True)
    cuts = numpy.flatnonzero(numpy.diff(wanted) != 1) + 1
    runs = [(int(run[0]), len(run)) for run in numpy.split(wanted, cuts) if len(run)]
    return runs, where.reshape(part.shape)


def _joined(runs: list[tuple[int, int]], where: Any) -> tuple[list[tuple[int, int]], Any]:
    """One run in place of several, with what is between them."""
    numpy = _numpy()
    first = runs[0][0]
    indices = numpy.concatenate([numpy.arange(begin, begin + count) for begin, count in runs])
    return [(first, int(indices[-1]) - first + 1)], indices[where] - first


def one_of_each(key: Any, shape: tuple[int, ...], name: str) -> list[Any]:
    """An index without lists and masks, as an int or a range for each dimension. Raises IndexError and TypeError, as NumPy does."""
    parts: list[Any] = []
    for d, (part, length) in enumerate(zip(_expanded(key, len(shape), name), shape)):
        if isinstance(part, _Mask) or getattr(part, "ndim", 0) > 0:
            raise WrongType("usage", "a view takes integers, slices and an ellipsis", tensor=name)
        parts.append(range(*part.indices(length)) if isinstance(part, slice) else _one(part, length, d))
    return parts


def select(key: Any, shape: tuple[int, ...], name: str) -> Selection:
    """Raises IndexError and TypeError, as NumPy does."""
    runs: list[list[tuple[int, int]]] = []  # along each dimension
    steps: list[int] = []
    index: list[Any] = []
    regions, plain = 1, True
    for d, (part, length) in enumerate(zip(_expanded(key, len(shape), name), shape)):
        step = 1
        if isinstance(part, slice):
            start, stop, step = part.indices(length)
            count = len(range(start, stop, step))
            index.append(slice(None, None, -1 if step < 0 and count > 1 else None))
            if step < 0:
                start, step = start + (count - 1) * step, -step
            runs.append([(start, count) if count else (0, 0)])
            step = step if count > 1 else 1
        elif isinstance(part, _Mask) or getattr(part, "ndim", 0) > 0:
            several, where = _several(part, length, d)
            if regions * len(several) > _MOST_REGIONS:
                several, where = _joined(several, where)
            regions *= max(len(several), 1)
            runs.append(several or [(0, 0)])
            index.append(where)
            plain = False
        else:
            runs.append([(_one(part, length, d), 1)])
            index.append(0)
        steps.append(step)
    made: list[Region] = [([], [], steps, [])]
    for along in runs:
        at, places = 0, []
        for start, count in along:
            places.append((start, count, at))
            at += count
        made = [(starts + [start], counts + [count], steps, ats + [place])
                for starts, counts, _, ats in made for start, count, place in places]
    return Selection([sum(count for _, count in along) for along in runs], made, tuple(index), plain)

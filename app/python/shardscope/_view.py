"""Parts of a tensor that are still to be read: indices and transpositions that only say what."""
from __future__ import annotations

import math

from ._errors import WrongValue
from ._indexing import one_of_each

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Optional, Union

    from ._tensor import Tensor

    # What is taken along a dimension of the tensor: one index, or (first, step, count).
    Along = Union[int, tuple[int, int, int]]


class View:
    """A part of a tensor, of which nothing has been read yet: made by ``Tensor.view``, cut by ``v[128:256, ::2]`` and turned by
    ``v.T`` and ``v.transpose(...)``, as often as you like. ``numpy()`` and ``torch()`` read it, and only its bytes.
    """

    __slots__ = ("tensor", "_along", "_order")

    def __init__(self, tensor: "Tensor", along: "Optional[list[Along]]" = None, order: Optional[list[int]] = None) -> None:
        self.tensor = tensor
        self._along: list[Along] = [(0, 1, length) for length in tensor.shape] if along is None else along
        # Dimensions of the tensor that the view has, in its order.
        self._order = list(range(tensor.ndim)) if order is None else order

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._of(d)[2] for d in self._order)

    def _of(self, dimension: int) -> tuple[int, int, int]:
        along = self._along[dimension]
        assert not isinstance(along, int)
        return along

    @property
    def dtype(self) -> str:
        return self.tensor.dtype

    @property
    def ndim(self) -> int:
        return len(self._order)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def T(self) -> "View":
        """All dimensions in reverse."""
        return self.transpose()

    def transpose(self, *axes: int) -> "View":
        """Dimensions in this order; without an order, in reverse."""
        order = [axis % self.ndim if -self.ndim <= axis < self.ndim else self.ndim for axis in axes] if axes else \
            list(reversed(range(self.ndim)))
        if sorted(order) != list(range(self.ndim)):
            raise WrongValue("usage", f"{axes} is not an order of {self.ndim} dimensions", tensor=self.tensor.name)
        return View(self.tensor, self._along, [self._order[axis] for axis in order])

    def __getitem__(self, key: Any) -> "View":
        """Integers, slices and ``...``; lists and masks are for ``numpy()``, which reads."""
        along, order = list(self._along), []
        for d, part in zip(self._order, one_of_each(key, self.shape, self.tensor.name)):
            first, step, _ = self._of(d)
            if isinstance(part, int):
                along[d] = first + part * step
            else:
                along[d] = (first + part.start * step, part.step * step, len(part))
                order.append(d)
        return View(self.tensor, along, order)

    def _key(self) -> tuple[Any, ...]:
        key: list[Any] = []
        for along in self._along:
            if isinstance(along, int):
                key.append(along)
                continue
            first, step, count = along
            end = first + count * step
            key.append(slice(first, end if end >= 0 else None, step) if count else slice(0, 0))
        return tuple(key)

    def _axes(self) -> list[int]:
        """Where each dimension of the view is in what is read."""
        kept = sorted(self._order)
        return [kept.index(d) for d in self._order]

    def numpy(self, threads: int = 0) -> Any:
        """Reads it into an array of NumPy."""
        return self.tensor.numpy(self._key(), threads).transpose(self._axes())

    def torch(self, threads: int = 0, device: Any = None) -> Any:
        """Reads it into a tensor of torch."""
        return self.tensor.torch(self._key(), threads=threads, device=device).permute(self._axes())

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Any:
        if copy is False:
            raise WrongValue("usage", "a view of a checkpoint cannot be an array without a copy", tensor=self.tensor.name)
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __len__(self) -> int:
        if not self._order:
            raise TypeError("len() of a view without dimensions")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<shardscope.View of {self.tensor.name!r} {self.dtype} {list(self.shape)}>"

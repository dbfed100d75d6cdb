"""Arrays of jax, of which each device gets its own part. Imports jax: only for what needs it."""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._errors import NoPackage, WrongValue

if TYPE_CHECKING:
    from ._tensor import Tensor


def _jax() -> Any:
    try:
        return importlib.import_module("jax")
    except ImportError:
        raise NoPackage("unsupported", "reading into jax needs jax, which is not installed", hint="pip install jax") from None


def read(tensor: Tensor, sharding: Any, threads: int) -> Any:
    """See Tensor.jax."""
    jax = _jax()
    from . import _dtypes

    dtype = _dtypes.numpy_dtype(tensor.dtype)
    if jax.dtypes.canonicalize_dtype(dtype) != dtype:
        raise WrongValue("usage", f"jax holds {tensor.dtype} only with jax.config.update('jax_enable_x64', True)", tensor=tensor.name)
    if sharding is None:
        return jax.device_put(tensor.numpy(threads=threads))
    parts: dict[Any, Any] = {}  # replicas are read once

    def part(index: tuple[slice, ...]) -> Any:
        key = tuple(one.indices(length) for one, length in zip(index, tensor.shape))
        if key not in parts:
            parts[key] = tensor.numpy(index, threads)
        return parts[key]

    return jax.make_array_from_callback(tensor.shape, sharding, part)

"""Names of dtypes in NumPy and torch, neither of which is imported before it is needed."""
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

from ._errors import Error

_NUMPY = {"bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32",
          "float64", "complex64", "complex128"}
_ML_DTYPES = {"bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"}
_SIZES = {"bool": 1, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "uint32": 4, "int32": 4, "uint64": 8, "int64": 8,
          "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "complex32": 4, "bcomplex32": 4, "complex64": 8,
          "complex128": 16, "qint32": 4, "bits16": 2}


def size_of(name: str) -> int:
    """Bytes of one element; 1 for those that are packed in bytes."""
    return _SIZES.get(name, 1)


def numpy_dtype(name: str) -> Any:
    import numpy

    if name in _NUMPY:
        return numpy.dtype(name)
    if name in _ML_DTYPES:
        try:
            import ml_dtypes
        except ImportError:
            raise Error("unsupported", f"NumPy has no {name}",
                        hint="install ml_dtypes, read with .torch(), or take the bytes with .raw()") from None
        return numpy.dtype(getattr(ml_dtypes, name))
    raise Error("unsupported", f"NumPy has no {name}", hint="take the bytes with .raw()")


def torch_dtype(name: str) -> Any:
    import torch

    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise Error("unsupported", f"torch {torch.__version__} has no {name}",
                    hint="a newer torch may have it; .raw() gives the bytes")
    return dtype

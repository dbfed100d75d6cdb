"""The interface of ``safetensors.safe_open`` over any checkpoint."""
from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Optional, Union

from ._checkpoint import open as _open
from ._errors import Error
from ._tensor import Tensor

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from . import _options

# safetensors 0.8, src/tensor.rs: enum Dtype.
_NAMES = {"bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32",
          "uint64": "U64", "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
          "complex64": "C64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0",
          "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ", "float6_e2m3": "F6_E2M3",
          "float6_e3m2": "F6_E3M2", "float4_e2m1fn_x2": "F4"}


class SafeSlice:
    """A tensor of which slices are read: ``s[:, 2:4]``."""

    def __init__(self, owner: "SafeOpen", tensor: Tensor) -> None:
        self._owner, self._tensor = owner, tensor

    def get_shape(self) -> list[int]:
        shape = list(self._tensor.shape)
        if self._tensor.dtype == "float4_e2m1fn_x2":
            shape[-1] *= 2  # safetensors counts values, torch bytes of two
        return shape

    def get_dtype(self) -> str:
        """As safetensors spells it: ``"BF16"``."""
        return _NAMES.get(self._tensor.dtype, self._tensor.dtype)

    def __getitem__(self, key: Any) -> Any:
        return self._owner._read(self._tensor, key)


class SafeOpen:
    """What ``safetensors_open`` returns; a context manager, as safetensors has it."""

    def __init__(self, path: Union[str, os.PathLike[str]], framework: str = "pt", device: Union[str, int] = "cpu",
                 weights_only: Optional[bool] = None, **options: Any) -> None:
        if framework in ("pt", "torch", "pytorch"):
            self._torch = True
        elif framework in ("np", "numpy"):
            self._torch = False
        else:
            raise Error("unsupported", f"'{framework}' is no framework that is read into", hint="'pt' or 'np'")
        self._device = f"cuda:{device}" if isinstance(device, int) else device
        self._checkpoint = _open(path, **options)
        # A safetensors file is what it is; of the others loaders expect the model.
        self._weights_only = self._checkpoint.format != "safetensors" if weights_only is None else weights_only

    def __enter__(self) -> "SafeOpen":
        return self

    def __exit__(self, *exception: Any) -> None:
        self._checkpoint.close()

    def keys(self) -> list[str]:
        """Names, sorted."""
        return sorted(self._checkpoint.select(weights_only=self._weights_only))

    def offset_keys(self) -> list[str]:
        """Names in the order in which the tensors are stored."""
        return [tensor.name for tensor in self._checkpoint.in_file_order(weights_only=self._weights_only)]

    def metadata(self) -> dict[str, str]:
        """The texts that a safetensors file has beside its tensors, and ``format``, which loaders ask for."""
        objects = self._checkpoint.objects
        texts = {"format": "pt"}
        for name in objects:
            value = objects[name]
            if isinstance(value, str):
                texts[name] = value
            elif name == "__metadata__" and isinstance(value, dict):
                texts.update(value)
        return texts

    def get_tensor(self, name: str) -> Any:
        return self._read(self._tensor(name), Ellipsis)

    def get_slice(self, name: str) -> SafeSlice:
        return SafeSlice(self, self._tensor(name))

    def _tensor(self, name: str) -> Tensor:
        return self._checkpoint[name]

    def _read(self, tensor: Tensor, key: Any) -> Any:
        if not self._torch:
            return tensor.numpy(key)
        return tensor.torch(key, device=self._device)


def safetensors_open(path: Union[str, os.PathLike[str]], framework: str = "pt", device: Union[str, int] = "cpu",
                     weights_only: Optional[bool] = None, **options: Unpack[_options.OpenedOptions]) -> SafeOpen:
    """``safetensors.safe_open`` over a checkpoint of any format: ``keys``, ``get_tensor``, ``get_slice``, ``metadata``,
    ``offset_keys``. framework: ``"pt"`` or ``"np"``. weights_only: list parameters and buffers alone; None: so of every format
    but safetensors. What is not listed is read by its name. options: as of ``shardscope.open``. Raises Error."""
    return SafeOpen(path, framework, device, weights_only, **options)

"""What ``torch.distributed.checkpoint`` takes: load any checkpoint in any sharding, without converting it first.

    >>> import torch.distributed.checkpoint as dcp
    >>> import shardscope.torch
    >>> dcp.load(model.state_dict(), storage_reader=shardscope.torch.StorageReader("global_step100"))

For torch 2.3 and later.
"""
from __future__ import annotations

import io
import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Iterable, Optional, Union

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner
from torch.distributed.checkpoint.storage import StorageReader as _StorageReader
from torch.futures import Future

from . import _dtypes
from ._checkpoint import Checkpoint, Opaque
from ._checkpoint import open as _open
from ._errors import Error
from ._reads import Reads

if TYPE_CHECKING:
    from . import _options
    from ._words import Progress

__all__ = ["StorageReader"]



class StorageReader(_StorageReader):
    """Reads a checkpoint of any format for ``torch.distributed.checkpoint.load``.

    Each rank reads only the bytes of its own shards, straight into the memory of the tensors that it loads. Names are
    those of the checkpoint (``shardscope ls``), or of what ``map`` makes of it: a recipe, such as
    ``map="llama-hf-from-megatron"``, with values for its parameters in ``set``. ``prefix`` is put before them, where the state dict nests the model
    deeper, and ``strip`` taken from their beginning; names that ``strip`` does not begin are left out then.
    master_weights: a parameter of more bits than the stored weight, such as a float32 one of a bf16 weight, is filled
    from the fp32 master in the checkpoint's optimizer state, where there is one; ``"use"`` fills any parameter from it
    (rounded once), ``"ignore"`` none. options: as of ``shardscope.open``, ``map``, ``set`` and ``rename`` among them.

    Raises Error: what opening and reading raise; ``unsupported`` for a value that is no plain data. torch raises its
    own errors for names that the checkpoint lacks.
    """

    def __init__(self, path: Union[str, os.PathLike[str]], *, prefix: str = "", strip: str = "",
                 format: Optional[_options.ReadFormat] = None, threads: int = 0, progress: Optional[Progress] = None,
                 **options: Any) -> None:
        super().__init__()
        self.path = os.fspath(path)
        self._prefix, self._strip = prefix, strip
        self._format: Optional[_options.ReadFormat] = format
        self._options: Any = options
        self._threads = threads
        self._progress: Optional[Progress] = progress
        self._checkpoint: Optional[Checkpoint] = None

    @property
    def checkpoint(self) -> Checkpoint:
        """The open checkpoint; opened when first asked for."""
        if self._checkpoint is None:
            self._checkpoint = _open(self.path, self._format, **self._options)
        return self._checkpoint

    @property
    def checkpoint_id(self) -> str:
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Union[str, os.PathLike[str]]) -> bool:
        return True

    def reset(self, checkpoint_id: Union[str, os.PathLike[str], None] = None) -> None:
        if checkpoint_id is not None and os.fspath(checkpoint_id) != self.path:
            self.path, self._checkpoint = os.fspath(checkpoint_id), None

    def _outer(self, name: str) -> Optional[str]:
        """The name that the state dict has for a name of the checkpoint; None: none."""
        if not name.startswith(self._strip):
            return None
        return self._prefix + name[len(self._strip):]

    def _inner(self, name: str) -> str:
        return self._strip + name[len(self._prefix):]

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """The catalog as torch's metadata: each tensor as one chunk, however it is stored, so that a rank asks for
        each of its shards once."""
        entries: dict[str, Any] = {}
        paths: dict[str, tuple[Any, ...]] = {}
        checkpoint = self.checkpoint
        for name in checkpoint:
            outer = self._outer(name)
            if outer is None:
                continue
            tensor = checkpoint[name]
            try:
                dtype = _dtypes.torch_dtype(tensor.dtype)
            except Error:
                continue  # this torch has no place for it
            size = torch.Size(tensor.shape)
            whole = ChunkStorageMetadata(offsets=torch.Size([0] * len(size)), sizes=size)
            entries[outer] = TensorStorageMetadata(TensorProperties(dtype=dtype), size, [whole])
            paths[outer] = self._path(outer, name, tensor.path)
        objects = checkpoint.objects
        for name in objects:
            outer = self._outer(name)
            if outer is not None and outer not in entries:
                entries[outer] = BytesStorageMetadata()
                paths[outer] = self._path(outer, name, objects.path_of(name))
        return Metadata(state_dict_metadata=entries, planner_data=paths)

    def _source(self, tensor: Any, wanted: torch.dtype) -> Any:
        """What a tensor of this dtype is filled from: the stored one, or its master."""
        how = self._options.get("master_weights")
        stored = _dtypes.torch_dtype(tensor.dtype)
        if how == "ignore" or not wanted.is_floating_point or (how != "use" and wanted == stored):
            return tensor
        master = tensor.master
        if master is None or (how != "use" and torch.finfo(wanted).eps >= torch.finfo(stored).eps):
            return tensor
        return master

    def _path(self, outer: str, name: str, path: tuple[Any, ...]) -> tuple[Any, ...]:
        return path if outer == name else (outer,)

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        pass

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> "Future[None]":
        checkpoint = self.checkpoint
        objects = checkpoint.objects
        reads = Reads(checkpoint)
        for item in plan.items:
            name = self._inner(item.storage_index.fqn)
            if item.type == LoadItemType.BYTE_IO:
                value = objects[name]
                _check_plain(value, name, self.path)
                data = io.BytesIO()
                torch.save(value, data)
                data.seek(0)
                planner.load_bytes(item, data)
                continue
            target = planner.resolve_tensor(item).detach()
            if target.size() != torch.Size(item.lengths):
                raise Error("usage", f"the tensor to fill has {list(target.size())}, the plan {list(item.lengths)}",
                            tensor=name)
            reads.add(self._source(checkpoint[name], target.dtype), list(item.storage_offsets), list(item.lengths),
                      [1] * len(item.lengths), target,
                      partial(planner.commit_tensor, item, target))
        reads.run(self._threads, self._progress)
        done: "Future[None]" = Future()
        done.set_result(None)
        return done


def _check_plain(value: Any, name: str, path: str) -> None:
    ahead: list[Any] = [value]
    while ahead:
        at = ahead.pop()
        if isinstance(at, Opaque):
            raise Error("unsupported", f"'{name}' holds an object of {at.kind}, which is not made: {at.repr}", file=path,
                        hint="leave it out of the state dict that is loaded")
        if isinstance(at, Mapping):
            ahead.extend(at.values())
        elif isinstance(at, Iterable) and not isinstance(at, (str, bytes, bytearray)):
            ahead.extend(at)

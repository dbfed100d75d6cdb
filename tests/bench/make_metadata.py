"""Writes a DCP `.metadata` of many tensors and chunks without PyTorch: stand-in classes with the qualified names that
torch.distributed.checkpoint uses are pickled by CPython itself, so that the opcodes are those of a real save.

    make_metadata.py OUT.metadata [--tensors 1024] [--chunks 1024] [--protocol 4] [--share] [--generation new|old]

--share lets storage_data refer to the very offsets objects of the chunk lists, as a save in one process does; without it
they are equal but separate, as after a gather from other ranks.
"""

import argparse
import dataclasses
import enum
import pickle
import sys
import types
from typing import Any


def module(name):
    parts = name.split(".")
    for i in range(1, len(parts) + 1):
        full = ".".join(parts[:i])
        if full not in sys.modules:
            sys.modules[full] = types.ModuleType(full)
            if i > 1:
                setattr(sys.modules[".".join(parts[: i - 1])], parts[i - 1], sys.modules[full])
    return sys.modules[name]


def place(cls, where, name=None):
    cls.__module__ = where
    cls.__name__ = cls.__qualname__ = name or cls.__name__
    setattr(module(where), cls.__name__, cls)
    return cls


META = "torch.distributed.checkpoint.metadata"
FILES = "torch.distributed.checkpoint.filesystem"


class Size(tuple):
    def __reduce__(self):
        return (Size, (tuple(self),))


class DType:
    def __init__(self, name):
        self.name = name

    def __reduce__(self):
        return self.name


def _get_layout(name):
    return Layout()


class Layout:
    def __reduce__(self):
        return (_get_layout, ("torch.strided",))


LAYOUT = Layout()  # one, as torch has


class _MEM_FORMAT_ENCODING(enum.Enum):
    TORCH_CONTIGUOUS_FORMAT = 0
    TORCH_CHANNELS_LAST = 1
    TORCH_PRESERVE_FORMAT = 2


class TensorProperties:
    def __init__(self, state):
        self.state = state

    def __getstate__(self):
        return self.state


@dataclasses.dataclass
class ChunkStorageMetadata:
    offsets: Any
    sizes: Any


@dataclasses.dataclass
class TensorStorageMetadata:
    properties: Any
    size: Any
    chunks: Any


@dataclasses.dataclass
class BytesStorageMetadata:
    pass


@dataclasses.dataclass
class Metadata:
    state_dict_metadata: Any
    planner_data: Any = None
    storage_data: Any = None
    storage_meta: Any = None
    version: Any = None


@dataclasses.dataclass(frozen=True)
class MetadataIndex:
    fqn: str
    offset: Any = None
    index: Any = dataclasses.field(hash=False, compare=False, default=None)

    def __init__(self, fqn, offset=None, index=None):
        object.__setattr__(self, "fqn", fqn)
        object.__setattr__(self, "index", index)
        if offset is not None:
            object.__setattr__(self, "offset", offset)


@dataclasses.dataclass
class StorageMeta:
    checkpoint_id: Any = None
    save_id: Any = None
    load_id: Any = None
    modules: Any = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class _StorageInfo:
    relative_path: str
    offset: int
    length: int


def prepare(generation="new"):
    """Puts the stand-ins where a save of this generation has the classes; returns what dtypes are made with."""
    properties_module = META if generation == "new" else "torch.distributed._shard.sharded_tensor.metadata"
    for cls in (ChunkStorageMetadata, TensorStorageMetadata, BytesStorageMetadata, Metadata, MetadataIndex, StorageMeta):
        place(cls, META)
    place(TensorProperties, properties_module)
    place(_MEM_FORMAT_ENCODING, properties_module, "_MEM_FORMAT_ENCODING" if generation == "new" else "MEM_FORMAT_ENCODING")
    place(_StorageInfo, FILES)
    place(Size, "torch")
    place(_get_layout, "torch.serialization")

    def dtype(name):
        made = DType(name)
        made.__module__ = "torch"
        setattr(module("torch"), name, made)
        return made

    return dtype


def tensor(dtype, shape, boxes):
    """Metadata of one tensor that is stored as these boxes: (offsets, lengths)."""
    return TensorStorageMetadata(
        TensorProperties((dtype, LAYOUT, False, _MEM_FORMAT_ENCODING.TORCH_CONTIGUOUS_FORMAT, False)),
        Size(shape),
        [ChunkStorageMetadata(Size(offsets), Size(lengths)) for offsets, lengths in boxes],
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--tensors", type=int, default=1024)
    parser.add_argument("--chunks", type=int, default=1024)
    parser.add_argument("--protocol", type=int, default=4)
    parser.add_argument("--share", action="store_true")
    parser.add_argument("--generation", choices=["new", "old"], default="new")
    args = parser.parse_args()

    float32 = prepare(args.generation)("float32")
    rows, columns, bytes_per_chunk = 8, 4096, 8 * 4096 * 4 + 1577
    state, planner, storage = {}, {}, {}
    for t in range(args.tensors):
        name = f"model.layers.{t}.mlp.down_proj.weight"
        boxes = [((rows * c, 0), (rows, columns)) for c in range(args.chunks)]
        state[name] = tensor(float32, (rows * args.chunks, columns), boxes)
        planner[name] = tuple(name.split("."))
    names = list(state)
    for c in range(args.chunks):
        path = f"__{c}_0.distcp"
        for t, name in enumerate(names):
            offsets = state[name].chunks[c].offsets if args.share else Size((rows * c, 0))
            storage[MetadataIndex(name, offsets, c)] = _StorageInfo(path, t * bytes_per_chunk, bytes_per_chunk)
    with open(args.out, "wb") as out:
        pickle.dump(Metadata(state, planner, storage, StorageMeta("/data/step-1000", "save", None, [])), out, protocol=args.protocol)


if __name__ == "__main__":
    main()

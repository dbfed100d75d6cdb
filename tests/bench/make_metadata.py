"""Writes a DCP `.metadata` of many tensors and chunks without PyTorch: stand-in classes with the qualified names that
torch.distributed.checkpoint uses are pickled by CPython itself, so that the opcodes are those of a real save.

    make_metadata.py OUT.metadata [--tensors 1024] [--chunks 1024] [--protocol 4] [--share] [--generation new|old] [--rows 8]
                     [--files]

More than 2 million chunks are written opcode by opcode, the same bytes but for FRAME: the pickler would keep 1.5 KB of
objects for each chunk. --check compares both ways.

--share lets storage_data refer to the very offsets objects of the chunk lists, as a save in one process does; without it
they are equal but separate, as after a gather from other ranks.
"""

import argparse
import dataclasses
import enum
import io
import itertools
import os
import pickle
import pickletools
import struct
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


FLOAT32, BFLOAT16 = DType("float32"), DType("bfloat16")
LAYOUT = Layout()


def register(generation="new"):
    """Gives the classes the qualified names of this generation of torch."""
    properties_module = META if generation == "new" else "torch.distributed._shard.sharded_tensor.metadata"
    for cls in (ChunkStorageMetadata, TensorStorageMetadata, BytesStorageMetadata, Metadata, MetadataIndex, StorageMeta):
        place(cls, META)
    place(TensorProperties, properties_module)
    place(_MEM_FORMAT_ENCODING, properties_module, "_MEM_FORMAT_ENCODING" if generation == "new" else "MEM_FORMAT_ENCODING")
    place(_StorageInfo, FILES)
    place(Size, "torch")
    place(_get_layout, "torch.serialization")
    for dtype in (FLOAT32, BFLOAT16):
        dtype.__module__ = "torch"
        setattr(module("torch"), dtype.name, dtype)


def tensor(dtype, shape, chunks):
    """`chunks`: (offsets, lengths) of each."""
    return TensorStorageMetadata(
        TensorProperties((dtype, LAYOUT, False, _MEM_FORMAT_ENCODING.TORCH_CONTIGUOUS_FORMAT, False)), Size(shape),
        [ChunkStorageMetadata(Size(offsets), Size(lengths)) for offsets, lengths in chunks])


def write(path, state, planner, storage, protocol=4):
    with open(path, "wb") as out:
        pickle.dump(Metadata(state, planner, storage, StorageMeta("/data/step-1000", "save", None, [])), out, protocol=protocol)


class Opcodes:
    """Opcodes of protocol 4. Every method returns bytes and counts what they memoize, so call them in the order of writing."""

    def __init__(self):
        self.count, self.seen = 0, {}

    def memoized(self, code, count=1):
        self.count += count
        return code

    def number(self, value):
        if value < 1 << 8:
            return b"K%c" % value
        if value < 1 << 16:
            return b"M" + struct.pack("<H", value)
        return b"J" + struct.pack("<i", value) if value < 1 << 31 else b"\x8a\x05" + value.to_bytes(5, "little")

    def text(self, value):
        return self.memoized(b"\x8c%c%s\x94" % (len(value), value.encode()))

    def once(self, key, write):
        """What `write` returns the first time, a reference to the last that it memoized afterwards."""
        if key not in self.seen:
            code = write()
            self.seen[key] = self.count - 1
            return code
        index = self.seen[key]
        return b"h%c" % index if index < 256 else b"j" + struct.pack("<I", index)

    def string(self, value):
        return self.once(value, lambda: self.text(value))

    def name(self, where, name):
        return self.once((where, name), lambda: self.string(where) + self.text(name) + self.memoized(b"\x93\x94"))

    def object(self, where, name):
        """An object without its state: two memo entries with the dictionary of its members."""
        return self.name(where, name) + self.memoized(b")\x81\x94}\x94(", 2)

    def size(self, *values):
        return self.name("torch", "Size") + self.memoized(b"".join(map(self.number, values)) + b"\x86\x94\x85\x94R\x94", 3)

    def properties(self):
        layout = lambda: (self.name("torch.serialization", "_get_layout") + self.text("torch.strided")
                          + self.memoized(b"\x85\x94R\x94", 2))
        memory = lambda: self.name(META, "_MEM_FORMAT_ENCODING") + self.memoized(b"K\x00\x85\x94R\x94", 2)
        return (self.name(META, "TensorProperties") + self.memoized(b")\x81\x94(") + self.name("torch", "float32")
                + self.once("layout", layout) + b"\x89" + self.once("memory", memory) + self.memoized(b"\x89t\x94b"))


def batches(items, end):
    """What the pickler puts around the items, two or more, of a list or dictionary: stretches of 1,000; an empty one after
    the last full one of a dictionary."""
    items = iter(items)
    batch = [None]
    while batch := list(itertools.islice(items, 1000)) or (end == b"u" and len(batch) == 1000 and [b""]):
        yield b"(" + b"".join(batch) + end


def stream(out, tensors, chunks, rows, columns, length):
    """The checkpoint that main() makes of objects. Chunk lists refer to nothing but the first entries of the memo, so that
    the opcodes of the second tensor's serve for all others."""
    to = Opcodes()
    names = [f"model.layers.{t}.mlp.down_proj.weight" for t in range(tensors)]

    def chunk(c):
        return (to.object(META, "ChunkStorageMetadata") + to.string("offsets") + to.size(rows * c, 0) + to.string("sizes")
                + to.size(rows, columns) + b"ub")

    known = None

    def state():
        nonlocal known
        for t, name in enumerate(names):
            head = (to.string(name) + to.object(META, "TensorStorageMetadata") + to.string("properties") + to.properties()
                    + to.string("size") + to.size(rows * chunks, columns) + to.string("chunks") + to.memoized(b"]\x94"))
            before = to.count
            if known:
                to.memoized(b"", known[1])
            body = known[0] if known else b"".join(batches((chunk(c) for c in range(chunks)), b"e"))
            if t == 1:
                known = body, to.count - before
            yield head + body + b"ub"

    def planner():
        for name in names:
            yield (to.string(name) + b"(" + b"".join(map(to.text, name.split("."))) + to.memoized(b"t\x94"))

    def storage():
        for c in range(chunks):
            for t, name in enumerate(names):
                yield (to.object(META, "MetadataIndex") + to.string("fqn") + to.string(name) + to.string("index") + to.number(c)
                       + to.string("offset") + to.size(rows * c, 0) + b"ub" + to.object(FILES, "_StorageInfo")
                       + to.string("relative_path") + to.string(f"__{c}_0.distcp") + to.string("offset")
                       + to.number(t * length) + to.string("length") + to.number(length) + b"ub")

    out.write(b"\x80\x04" + to.object(META, "Metadata"))
    for name, items in (("state_dict_metadata", state), ("planner_data", planner), ("storage_data", storage)):
        out.write(to.string(name) + to.memoized(b"}\x94"))
        out.writelines(batches(items(), b"u"))
    out.write(to.string("storage_meta") + to.object(META, "StorageMeta")
              + to.string("checkpoint_id") + to.text("/data/step-1000") + to.string("save_id") + to.text("save")
              + to.string("load_id") + b"N" + to.string("modules") + to.memoized(b"]\x94ub") + to.string("version") + b"Nub.")


def without_frames(pickled):
    """`pickled` with its FRAME opcodes, nine bytes each, taken out."""
    cuts = [at for opcode, _, at in pickletools.genops(pickled) if opcode.name == "FRAME"]
    parts = zip([0] + [at + 9 for at in cuts], cuts + [len(pickled)])
    return b"".join(pickled[a:b] for a, b in parts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--tensors", type=int, default=1024)
    parser.add_argument("--chunks", type=int, default=1024)
    parser.add_argument("--protocol", type=int, default=4)
    parser.add_argument("--share", action="store_true")
    parser.add_argument("--generation", choices=["new", "old"], default="new")
    parser.add_argument("--rows", type=int, default=8, help="of a chunk; 4,096 columns of float32")
    parser.add_argument("--files", action="store_true", help="make the data files, too, as holes")
    parser.add_argument("--check", action="store_true", help="compare the opcodes of both ways")
    args = parser.parse_args()
    rows, columns = args.rows, 4096
    bytes_per_chunk = rows * columns * 4 + 1577
    if args.files:
        for c in range(args.chunks):
            with open(os.path.join(os.path.dirname(args.out), f"__{c}_0.distcp"), "wb") as out:
                out.truncate(args.tensors * bytes_per_chunk)
    if args.tensors * args.chunks > 2 << 20:
        if args.share or args.protocol != 4 or args.generation != "new":
            parser.error("more than 2 million chunks are written by protocol 4, unshared, as new generations do")
        with open(args.out, "wb") as out:
            stream(out, args.tensors, args.chunks, rows, columns, bytes_per_chunk)
        return
    register(args.generation)

    state, planner, storage = {}, {}, {}
    for t in range(args.tensors):
        name = f"model.layers.{t}.mlp.down_proj.weight"
        state[name] = tensor(FLOAT32, (rows * args.chunks, columns), [((rows * c, 0), (rows, columns)) for c in range(args.chunks)])
        planner[name] = tuple(name.split("."))
    names = list(state)
    for c in range(args.chunks):
        path = f"__{c}_0.distcp"
        for t, name in enumerate(names):
            offsets = state[name].chunks[c].offsets if args.share else Size((rows * c, 0))
            storage[MetadataIndex(name, offsets, c)] = _StorageInfo(path, t * bytes_per_chunk, bytes_per_chunk)
    write(args.out, state, planner, storage, args.protocol)
    if args.check:
        streamed = io.BytesIO()
        stream(streamed, args.tensors, args.chunks, rows, columns, bytes_per_chunk)
        with open(args.out, "rb") as written:
            assert without_frames(written.read()) == streamed.getvalue()


if __name__ == "__main__":
    main()

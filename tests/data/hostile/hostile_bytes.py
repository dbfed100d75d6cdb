"""Bytes of the formats, put together by hand so that every field can be wrong: pickle opcodes, zip records,
torch.save files, safetensors headers, DCP metadata. Standard library only."""

import json
import struct
import zlib

# ------------------------------------------------------------------ pickle opcodes

PROTO2, PROTO4, STOP = b"\x80\x02", b"\x80\x04", b"."
MARK, TUPLE, EMPTY_TUPLE, TUPLE1 = b"(", b"t", b")", b"\x85"
DICT, LIST, SETITEM, SETITEMS, APPEND, APPENDS = b"}", b"]", b"s", b"u", b"a", b"e"
REDUCE, BUILD, NEWOBJ, NEWOBJ_EX, PERSID, POP, DUP = b"R", b"b", b"\x81", b"\x92", b"Q", b"0", b"2"
STACK_GLOBAL, MEMOIZE, FRAME, NONE, TRUE, FALSE = b"\x93", b"\x94", b"\x95", b"N", b"\x88", b"\x89"


def text(value):
    data = value if isinstance(value, bytes) else value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def short_text(value):
    return b"\x8c" + bytes([len(value)]) + value.encode()


def integer(value):
    if 0 <= value < 256:
        return b"K" + bytes([value])
    if -(2**31) <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def number(value):
    """An int as pickle opcodes; bytes are taken as opcodes already."""
    return value if isinstance(value, bytes) else integer(value)


def name(module, attribute):
    return b"c" + module.encode() + b"\n" + attribute.encode() + b"\n"


def tuple_of(*items):
    return MARK + b"".join(items) + TUPLE


def numbers(values):
    return tuple_of(*[number(v) for v in values])


def dict_of(*pairs):
    return DICT + MARK + b"".join(k + v for k, v in pairs) + SETITEMS


def call(function, *arguments):
    return function + tuple_of(*arguments) + REDUCE


def storage(key="0", numel=6, kind="FloatStorage", location="cpu"):
    key = key if isinstance(key, bytes) else text(key)
    return tuple_of(text("storage"), name("torch", kind), key, text(location), number(numel)) + PERSID


def legacy_storage(key="0", numel=6, kind="FloatStorage"):
    return tuple_of(text("storage"), name("torch", kind), text(key), text("cpu"), number(numel), NONE) + PERSID


def tensor(store=None, offset=0, size=(2, 3), stride=(3, 1), function="_rebuild_tensor_v2"):
    return call(name("torch._utils", function), storage() if store is None else store, number(offset), numbers(size), numbers(stride),
                FALSE, name("collections", "OrderedDict") + EMPTY_TUPLE + REDUCE)


def state_dict(*pairs):
    """A whole data.pkl: a dict of text keys."""
    return PROTO2 + dict_of(*[(text(k), v) for k, v in pairs]) + STOP


GOOD = state_dict(("w", tensor()))
FLOATS = struct.pack("<6f", 0.5, 1, 2, 3, 4, 5)

# ------------------------------------------------------------------ zip


class Record:
    """One zip entry. Whatever is None is what it ought to be; everything else is written as given."""

    def __init__(self, name, data, **wrong):
        self.name = name if isinstance(name, bytes) else name.encode()
        self.data = data
        self.method = wrong.pop("method", 0)
        self.flags = wrong.pop("flags", 0x0800)
        self.stored = zlib.compress(data, 9)[2:-4] if self.method == 8 else data
        crc = zlib.crc32(data)
        self.crc = wrong.pop("crc", crc)
        self.compressed = wrong.pop("compressed", len(self.stored))
        self.size = wrong.pop("size", len(data))
        self.local_name = wrong.pop("local_name", self.name)
        self.local_flags = wrong.pop("local_flags", self.flags)
        self.local_method = wrong.pop("local_method", self.method)
        streamed = self.flags & 8
        self.local_crc = wrong.pop("local_crc", 0 if streamed else self.crc)
        self.local_compressed = wrong.pop("local_compressed", 0 if streamed else self.compressed)
        self.local_size = wrong.pop("local_size", 0 if streamed else self.size)
        # Data descriptor: bytes, or made from the fields above when bit 3 is set.
        self.descriptor = wrong.pop("descriptor", struct.pack("<IIII", 0x08074B50, self.crc, self.compressed, self.size) if streamed else b"")
        self.align = wrong.pop("align", 64)
        self.central_extra = wrong.pop("central_extra", b"")
        self.offset = wrong.pop("offset", None)  # as the directory has it
        self.attributes = wrong.pop("attributes", 0)
        self.disk = wrong.pop("disk", 0)
        self.signature = wrong.pop("signature", 0x04034B50)
        assert not wrong, wrong


def zip_of(records, **wrong):
    """The archive, with torch's alignment of data to 64 bytes."""
    out = bytearray(wrong.pop("prefix", b""))
    offsets = []
    for r in records:
        here = len(out)
        offsets.append(here)
        start = here + 30 + len(r.local_name)
        padding = 0
        if r.align:
            padding = -start % r.align
            while padding and padding < 4:
                padding += r.align
        extra = b"FB" + struct.pack("<H", padding - 4) + b"Z" * (padding - 4) if padding else b""
        out += struct.pack("<IHHHHHIIIHH", r.signature, 0, r.local_flags, r.local_method, 0, 0, r.local_crc & 0xFFFFFFFF, r.local_compressed & 0xFFFFFFFF,
                           r.local_size & 0xFFFFFFFF, len(r.local_name), len(extra))
        out += r.local_name + extra + r.stored + r.descriptor
    out += wrong.pop("gap", b"")
    directory = len(out)
    for r, offset in zip(records, offsets):
        at = offset if r.offset is None else r.offset
        out += struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 0x031E, 0, r.flags, r.method, 0, 0, r.crc & 0xFFFFFFFF, r.compressed & 0xFFFFFFFF,
                           r.size & 0xFFFFFFFF, len(r.name), len(r.central_extra), 0, r.disk, 0, r.attributes, at & 0xFFFFFFFF)
        out += r.name + r.central_extra
    size = len(out) - directory
    out += wrong.pop("before_end", b"")
    zip64 = wrong.pop("zip64", None)  # (count, size, offset) of a zip64 record, or None for none
    if zip64 is not None:
        count64, size64, offset64 = [d if v is None else v for v, d in zip(zip64, (len(records), size, directory))]
        at = len(out) if wrong.get("locator") is None else wrong.pop("locator")
        out += struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 0x031E, 45, 0, 0, count64, count64, size64, offset64)
        out += struct.pack("<IIQI", 0x07064B50, 0, at, 1)
    wrong.pop("locator", None)
    count = wrong.pop("count", len(records))
    comment = wrong.pop("comment", b"")
    out += struct.pack("<IHHHHIIH", 0x06054B50, wrong.pop("disk", 0), 0, wrong.pop("count_here", count), count, wrong.pop("directory_size", size),
                       wrong.pop("directory_offset", directory), wrong.pop("comment_length", len(comment)))
    out += comment + wrong.pop("suffix", b"")
    assert not wrong, wrong
    return bytes(out)


def torch_records(pickle=GOOD, stores=None, top="archive", **more):
    """The records of a torch.save file: data.pkl, byteorder, data/*, version."""
    stores = {"0": FLOATS} if stores is None else stores
    records = [Record(f"{top}/data.pkl", pickle, **more.pop("pickle_fields", {}))]
    byteorder = more.pop("byteorder", b"little")
    if byteorder is not None:
        records.append(Record(f"{top}/byteorder", byteorder))
    for key, data in stores.items():
        records.append(Record(f"{top}/data/{key}", data, **more.get("store_fields", {})))
    more.pop("store_fields", None)
    version = more.pop("version", b"3\n")
    if version is not None:
        records.append(Record(f"{top}/version", version))
    assert not more, more
    return records


def torch_file(pickle=GOOD, stores=None, **more):
    return zip_of(torch_records(pickle, stores, **more))


# ------------------------------------------------------------------ legacy torch.save

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C


def legacy_file(pickle=None, keys=("0",), stores=((6, FLOATS),), magic=LEGACY_MAGIC, protocol=1001):
    sizes = dict_of((text("short"), integer(2)), (text("int"), integer(4)), (text("long"), integer(4)))
    system = PROTO2 + dict_of((text("protocol_version"), integer(1001)), (text("little_endian"), TRUE), (text("type_sizes"), sizes)) + STOP
    pickle = state_dict(("w", tensor(legacy_storage()))) if pickle is None else pickle
    out = PROTO2 + integer(magic) + STOP + PROTO2 + integer(protocol) + STOP + system + pickle
    out += PROTO2 + LIST + MARK + b"".join(text(k) for k in keys) + APPENDS + STOP
    for count, data in stores:
        out += struct.pack("<q", count) + data
    return out


# ------------------------------------------------------------------ safetensors


def safetensors_file(header, data=b"", length=None):
    """`header` is a dict (written as JSON) or the raw header bytes; `length` overrides the 8-byte length."""
    raw = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def entry(shape, begin, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


# ------------------------------------------------------------------ DCP

META = "torch.distributed.checkpoint.metadata"


def instance(module, attribute, state):
    return name(module, attribute) + EMPTY_TUPLE + NEWOBJ + state + BUILD


def fields(**values):
    return dict_of(*[(text(k), v) for k, v in values.items()])


def size_of(values):
    return call(name("torch", "Size"), numbers(values))


def dcp_tensor(size, chunks, dtype="float32"):
    layout = call(name("torch.serialization", "_get_layout"), text("torch.strided"))
    memory = call(name(META, "_MEM_FORMAT_ENCODING"), integer(0))
    properties = instance(META, "TensorProperties", tuple_of(name("torch", dtype), layout, FALSE, memory, FALSE))
    items = b"".join(instance(META, "ChunkStorageMetadata", fields(offsets=size_of(o), sizes=size_of(s))) for o, s in chunks)
    return instance(META, "TensorStorageMetadata", fields(properties=properties, size=size_of(size), chunks=LIST + MARK + items + APPENDS))


def dcp_index(fqn, offset, index=0):
    return instance(META, "MetadataIndex", fields(fqn=text(fqn), offset=NONE if offset is None else size_of(offset), index=number(index)))


def dcp_info(path, offset, length):
    return instance("torch.distributed.checkpoint.filesystem", "_StorageInfo",
                    fields(relative_path=path if isinstance(path, bytes) and path[:1] in (b"X", b"c") else text(path), offset=number(offset), length=number(length)))


def dcp_metadata(tensors, entries, planner=None):
    """`tensors`: {fqn: opcodes of its metadata}; `entries`: [(index opcodes, info opcodes)]."""
    planner = {t: (t,) for t in tensors} if planner is None else planner
    return PROTO2 + instance(META, "Metadata", fields(
        state_dict_metadata=dict_of(*[(text(k), v) for k, v in tensors.items()]),
        planner_data=dict_of(*[(text(k), tuple_of(*[text(p) for p in path])) for k, path in planner.items()]),
        storage_data=dict_of(*entries), storage_meta=NONE)) + STOP


def blob(size, kind="FloatStorage", itemsize=4, dtype_shape=None):
    """What torch.save writes for one chunk."""
    count = 1
    for s in size:
        count *= s
    shape = size if dtype_shape is None else dtype_shape
    strides, step = [], 1
    for s in reversed(shape):
        strides.insert(0, step)
        step *= s
    return torch_file(PROTO2 + tensor(storage(numel=count, kind=kind), 0, shape, strides) + STOP, {"0": bytes(range(1, count * itemsize + 1))})

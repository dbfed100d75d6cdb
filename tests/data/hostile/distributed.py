"""DCP directories: metadata that lies about its files, chunks that do not fit, pickles that call."""

import os

from hostile_bytes import *
from pickles import HTML_PAGE, LFS_POINTER, UNSAFE, evil

BAD = ("damaged", "unsupported", "limit", "unsafe", "not-found")
RULES = ("file.missing", "file.truncated", "meta.inconsistent", "coverage.gap", "coverage.overlap", "coverage.bounds", "meta.duplicate", "security.path", "value.zero", UNSAFE)

HALVES = [((0, 0), (2, 3)), ((2, 0), (2, 3))]
PART = blob((2, 3))


def checkpoint(corpus, id, expect="error", code=BAD, rule=RULES, size=(4, 3), chunks=HALVES, dtype="float32", infos=None, files=None, tensors=None, entries=None, metadata=None, planner=None, **more):
    """Tensor "w" of 4 x 3 in two chunks, each in a file of its own rank, with whatever is asked to be wrong."""
    infos = [dcp_info(f"__{i}_0.distcp", 0, len(PART)) for i in range(len(chunks))] if infos is None else infos
    entries = [(dcp_index("w", chunk[0], i), infos[i]) for i, chunk in enumerate(chunks)] if entries is None else entries
    tensors = {"w": dcp_tensor(size, chunks, dtype)} if tensors is None else tensors
    files = {f"__{i}_0.distcp": PART for i in range(len(chunks))} if files is None else files
    pickle = dcp_metadata(tensors, entries, planner) if metadata is None else metadata
    return corpus.tree(id, {**files, ".metadata": pickle}, expect, code, rule, **more)


def write(corpus):
    def one(id, **fields):
        return checkpoint(corpus, id, **fields)

    def path(second):
        return [dcp_info("__0_0.distcp", 0, len(PART)), dcp_info(second, 0, len(PART))]

    def place(offset, length):
        return [dcp_info("__0_0.distcp", 0, len(PART)), dcp_info("__1_0.distcp", offset, length)]

    both = {"__0_0.distcp": PART, "__1_0.distcp": PART}
    one("D00-good", expect="ok")
    # SerializationFormat.SAFETENSORS with the ordinary writer: every tensor is said to lie where the file begins.
    header = b'{"v":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[24,48]}}'
    one("D00-serialized-as-safetensors", text="SerializationFormat.SAFETENSORS", tensors={n: dcp_tensor((2, 3), HALVES[:1]) for n in "vw"},
        entries=[(dcp_index(n, (0, 0), 0), dcp_info("__0_0.distcp", 0, 24)) for n in "vw"],
        files={"__0_0.distcp": struct.pack("<Q", len(header)) + header + bytes(48)})
    quantized = call(name("torch._utils", "_rebuild_qtensor"), storage(kind="QInt8Storage", numel=6), integer(0), numbers((2, 3)), numbers((3, 1)), tuple_of(name("torch", "per_tensor_affine"), integer(1), integer(0)), FALSE, DICT)
    part = torch_file(PROTO2 + quantized + STOP, {"0": bytes(6)})
    one("D00-quantized", expect="error", rule="meta.inconsistent", text="kind quantized", size=(2, 3), chunks=HALVES[:1], dtype="qint8", infos=[dcp_info("__0_0.distcp", 0, len(part))], files={"__0_0.distcp": part})
    corpus.tree("D01-no-metadata", both, "error", BAD, text="metadata")
    corpus.tree("D01-only-tmp", {**both, ".metadata.tmp": b"x"}, "error", BAD, text=".metadata.tmp")
    for label, data in {"empty": b"", "lfs": LFS_POINTER, "html": HTML_PAGE, "zeros": bytes(1000), "zip": PART, "none": PROTO2 + NONE + STOP, "dict": PROTO2 + DICT + STOP, "state-dict": GOOD,
                        "int": PROTO2 + integer(1) + STOP, "deep": PROTO2 + EMPTY_TUPLE + TUPLE1 * 1_000_000 + STOP, "deep-lists": PROTO2 + LIST * 1_000_000 + APPEND * 999_999 + STOP,
                        "marks": PROTO2 + MARK * 1_000_000 + STOP, "text-2e63": PROTO4 + b"\x8d" + struct.pack("<Q", 1 << 63) + STOP, "memo-huge": PROTO2 + DICT + b"r\xff\xff\xff\xff" + STOP,
                        "frame-2e62": PROTO4 + FRAME + struct.pack("<Q", 1 << 62) + DICT + STOP, "no-stop": PROTO2 + DICT,
                        "laughs": PROTO2 + LIST + (DUP + b"\x86") * 60 + STOP}.items():
        one(f"D01-metadata-{label}", metadata=data)
    one("D01-metadata-cut", metadata=dcp_metadata({"w": dcp_tensor((4, 3), HALVES)}, [])[:-20])
    one("D01-metadata-after-stop", metadata=dcp_metadata({"w": dcp_tensor((4, 3), HALVES)}, [(dcp_index("w", c[0], i), dcp_info(f"__{i}_0.distcp", 0, len(PART))) for i, c in enumerate(HALVES)]) + b"x", expect="any")
    whole = dcp_metadata({"w": dcp_tensor((4, 3), HALVES)}, [(dcp_index("w", c[0], i), dcp_info(f"__{i}_0.distcp", 0, len(PART))) for i, c in enumerate(HALVES)])
    one("D02-call-first", metadata=PROTO2 + evil(corpus) + POP + whole[2:], text="posix.system")
    one("D02-call-root", metadata=PROTO2 + evil(corpus) + STOP)
    one("D02-call-path", infos=[dcp_info("__0_0.distcp", 0, len(PART)), dcp_info(name("posix", "system") + tuple_of(text("touch " + corpus.marker)) + REDUCE, 0, len(PART))])
    one("D02-call-offset", infos=place(evil(corpus), len(PART)))
    one("D02-call-tensor", tensors={"w": dcp_tensor((4, 3), HALVES), "x": evil(corpus)})
    one("D02-metadata-class-of-os", metadata=whole.replace(META.encode() + b"\nMetadata\n", b"posix\nsystem\n", 1), expect="warn", rule=UNSAFE)
    one("D02-planner-call", metadata=whole.replace(text("planner_data") + DICT, text("planner_data") + evil(corpus) + POP + DICT, 1))
    one("D02-evil-object", expect="error", tensors={"w": dcp_tensor((4, 3), HALVES), "o": name(META, "BytesStorageMetadata") + EMPTY_TUPLE + NEWOBJ},
        entries=[*[(dcp_index("w", c[0], i), dcp_info(f"__{i}_0.distcp", 0, len(PART))) for i, c in enumerate(HALVES)],
                 (dcp_index("o", None, NONE), dcp_info("__2_0.distcp", 0, len(torch_file(PROTO2 + evil(corpus) + STOP, {}))))],
        files={**both, "__2_0.distcp": torch_file(PROTO2 + evil(corpus) + STOP, {})}, text="posix.system")
    for label, bad in {"up": "../D00-good/__1_0.distcp", "absolute": "/etc/passwd", "middle": "x/../../D00-good/__1_0.distcp", "empty": "", "dot": ".", "nul": "__1_0.distcp\0", "backslash": "..\\x",
                       "metadata": ".metadata", "long": "n/" * 5000, "escape": "\x1b[2J\n__1_0.distcp"}.items():
        one(f"D03-path-{label}", infos=path(bad))
    directory = one("D03-link-outside", files={"__0_0.distcp": PART})
    os.symlink("../D00-good/__1_0.distcp", os.path.join(directory, "__1_0.distcp"))
    directory = one("D03-link-loop", files={"__0_0.distcp": PART})
    os.symlink("__1_0.distcp", os.path.join(directory, "__1_0.distcp"))
    directory = one("D03-fifo", files={"__0_0.distcp": PART})
    os.mkfifo(os.path.join(directory, "__1_0.distcp"))
    directory = one("D03-dev-zero", files={"__0_0.distcp": PART})
    os.symlink("/dev/zero", os.path.join(directory, "__1_0.distcp"))
    directory = one("D03-directory", files={"__0_0.distcp": PART})
    os.mkdir(os.path.join(directory, "__1_0.distcp"))
    directory = corpus.tree("D03-metadata-fifo", both, "error", BAD)
    os.mkfifo(os.path.join(directory, ".metadata"))
    directory = corpus.tree("D03-metadata-directory", both, "error", BAD)
    os.mkdir(os.path.join(directory, ".metadata"))
    directory = corpus.tree("D03-metadata-outside", both, "error", BAD)
    os.symlink("../D00-good/.metadata", os.path.join(directory, ".metadata"))

    length = len(PART)
    for label, (offset, size) in {"past-end": (1, length), "offset-past-end": (length, length), "length-2e62": (0, 1 << 62), "offset-2e62": (1 << 62, length), "sum-past-2e63": ((1 << 63) - 1, length),
                                  "offset-2e64": (1 << 64, length), "length-2e64": (0, 1 << 64), "negative-offset": (-1, length), "negative-length": (0, -length), "zero-length": (0, 0),
                                  "short-length": (0, length - 1), "wrong-blob": (4, length - 4), "offset-text": (text("0"), length), "offset-float": (b"G" + bytes(8), length), "offset-none": (NONE, length)}.items():
        one(f"D04-{label}", infos=place(offset, size))
    one("D04-same-bytes", infos=[dcp_info("__0_0.distcp", 0, length)] * 2, expect="any")
    one("D04-overlapping-bytes", infos=[dcp_info("__0_0.distcp", 0, length), dcp_info("__0_0.distcp", 8, length)], files={"__0_0.distcp": PART + bytes(8)})

    def grid(id, size, chunks, **fields):
        one(f"D05-{id}", size=size, chunks=chunks, **fields)

    grid("gap", (5, 3), HALVES, text="coverage.gap")
    grid("overlap", (4, 3), [((0, 0), (2, 3)), ((1, 0), (2, 3))], text="coverage.overlap")
    grid("bounds", (4, 3), [((0, 0), (2, 3)), ((3, 0), (2, 3))])
    grid("offset-2e62", (4, 3), [((0, 0), (2, 3)), ((1 << 62, 0), (2, 3))])
    grid("offset-max", (4, 3), [((0, 0), (2, 3)), (((1 << 63) - 1, 0), (2, 3))])
    grid("offset-2e64", (4, 3), [((0, 0), (2, 3)), ((1 << 64, 0), (2, 3))])
    grid("size-2e62", (1 << 62, 1 << 62), HALVES)
    grid("size-negative", (-4, 3), HALVES)
    grid("chunk-negative", (4, 3), [((0, 0), (2, 3)), ((2, 0), (-2, 3))])
    grid("chunk-huge", (4, 3), [((0, 0), (2, 3)), ((2, 0), (1 << 62, 1 << 62))])
    grid("chunk-rank", (4, 3), [((0, 0), (2, 3)), ((2,), (2,))])
    grid("rank-200", (1,) * 200, [((0,) * 200, (1,) * 200)], files={"__0_0.distcp": blob((1,) * 200)}, expect="any")
    grid("empty-chunk", (4, 3), [*HALVES, ((4, 0), (0, 3))], infos=[dcp_info(f"__{i}_0.distcp", 0, len(p)) for i, p in enumerate((PART, PART, blob((0, 3))))],
         files={**both, "__2_0.distcp": blob((0, 3))}, expect="ok")
    one("D05-no-chunks", tensors={"w": dcp_tensor((4, 3), [])}, entries=[])
    one("D05-duplicate-chunk", chunks=[HALVES[0], HALVES[0]], expect="any")
    many = [((i, 0), (1, 3)) for i in range(20_000)]
    one("D05-20k-chunks-of-one-file", size=(20_000, 3), chunks=many, infos=[dcp_info("__0_0.distcp", 0, len(blob((1, 3))))] * len(many), files={"__0_0.distcp": blob((1, 3))}, expect="any")
    one("D04-entry-missing", entries=[(dcp_index("w", (0, 0), 0), dcp_info("__0_0.distcp", 0, length))])
    one("D04-entry-unknown-tensor", entries=[*[(dcp_index("w", c[0], i), dcp_info(f"__{i}_0.distcp", 0, length)) for i, c in enumerate(HALVES)], (dcp_index("x", (0, 0), 0), dcp_info("__0_0.distcp", 0, length))], expect="any")
    one("D04-entry-other-offset", entries=[(dcp_index("w", (0, 0), 0), dcp_info("__0_0.distcp", 0, length)), (dcp_index("w", (3, 0), 1), dcp_info("__1_0.distcp", 0, length))])
    one("D04-entry-index-huge", entries=[(dcp_index("w", c[0], 1 << 40), dcp_info(f"__{i}_0.distcp", 0, length)) for i, c in enumerate(HALVES)], expect="any")
    one("D05-dtype-unknown", dtype="float33", expect="warn", text="float33")
    one("D05-dtype-of-os", metadata=whole.replace(b"ctorch\nfloat32\n", b"cos\nsystem\n", 1))
    one("D05-planner-unknown", planner={"nothing": ("a",)}, expect="any")
    one("D05-planner-empty-path", planner={"w": ()}, expect="any")
    one("D05-name-escape", tensors={"\x1b[2J\nw": dcp_tensor((4, 3), HALVES)}, entries=[(dcp_index("\x1b[2J\nw", c[0], i), dcp_info(f"__{i}_0.distcp", 0, length)) for i, c in enumerate(HALVES)], expect="any")

    one("D06-missing", files={"__0_0.distcp": PART}, text="__1_0.distcp")
    for label, data in {"cut": PART[:-1], "half": PART[:len(PART) // 2], "empty": b"", "zeros": bytes(length), "lfs": LFS_POINTER, "html": HTML_PAGE, "noise": bytes((i * 131 + 7) & 255 for i in range(length))}.items():
        one(f"D06-{label}", files={**both, "__1_0.distcp": data})
    one("D06-stale", files={**both, "__7_0.distcp": PART}, expect="warn", rule=("file.unreferenced", "file.stale"))
    one("D06-longer", files={**both, "__1_0.distcp": PART + b"tail"}, expect="any")
    fitting = {"dtype": blob((2, 3), "IntStorage"), "shape": blob((3, 2)), "size": torch_file(PROTO2 + tensor(storage(numel=6), 0, (1, 3), (3, 1)) + STOP, {"0": FLOATS}),
               "dict": torch_file(), "foreign": torch_file(PROTO2 + evil(corpus) + STOP), "legacy": legacy_file(PROTO2 + tensor(legacy_storage()) + STOP)}
    for label, data in fitting.items():
        one(f"D07-{label}", infos=place(0, len(data)), files={**both, "__1_0.distcp": data}, expect="any" if label == "legacy" else "error")
    expand = torch_file(PROTO2 + tensor(storage(numel=1), 0, (1 << 20, 1 << 20), (0, 0)) + STOP, {"0": FLOATS[:4]})
    one("D07-expand-bomb", size=(1 << 20, 1 << 20), chunks=[((0, 0), (1 << 20, 1 << 20))], infos=[dcp_info("__0_0.distcp", 0, len(expand))], files={"__0_0.distcp": expand}, expect="any")

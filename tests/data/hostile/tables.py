"""safetensors headers and Hugging Face indices: JSON that breaks the rules, paths that leave, files that are none."""

import os
import socket
import stat

from hostile_bytes import *
from pickles import HTML_PAGE, LFS_POINTER, REFUSED

BAD = ("damaged", "unsupported", "limit")
FILES = ("file.missing", "file.truncated", "meta.inconsistent", "coverage.bounds", "meta.duplicate")
GOOD_HEADER = {"w": entry([2, 3], 0, 24)}


def headers(corpus):
    def one(id, data, expect="error", code=BAD, rule=FILES, **more):
        corpus.file(id, "model.safetensors", data, expect, code, rule, **more)

    good = safetensors_file(GOOD_HEADER, FLOATS)
    one("S00-good", good, "ok")
    for size in range(8):
        one(f"S01-{size}-bytes", good[:size])
    for label, length in {"beyond-file": 1000, "2e63": 1 << 63, "all-ones": (1 << 64) - 1, "2e63-8": (1 << 63) - 8, "limit-plus-1": 100_000_001, "zero": 0}.items():
        one(f"S01-length-{label}", safetensors_file(GOOD_HEADER, FLOATS, length), rss_mib=64)
    one("S02-lfs", LFS_POINTER, text="git-lfs")
    one("S02-html", HTML_PAGE, text="HTML")
    one("S02-zeros", bytes(4096))
    w = b'"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}'
    for label, raw in {
        "not-utf8": b'{"\xff\xfe":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}',
        "not-json": b"hello, I am a header", "open-brace": b"{", "array": b"[" + b"1," * 10 + b"1]", "string": b'"w"', "null": b"null",
        "trailing-garbage": b"{" + w + b"}x", "two-objects": b"{" + w + b"}{}", "trailing-comma": b"{" + w + b",}", "single-quotes": b"{'w':1}", "comment": b"{/**/" + w + b"}",
        "entry-is-array": b'{"w":["F32",[2,3],[0,24]]}', "entry-is-null": b'{"w":null}', "no-dtype": b'{"w":{"shape":[2,3],"data_offsets":[0,24]}}',
        "no-shape": b'{"w":{"dtype":"F32","data_offsets":[0,24]}}', "no-offsets": b'{"w":{"dtype":"F32","shape":[2,3]}}', "three-offsets": b'{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24,24]}}',
        "dtype-number": b'{"w":{"dtype":4,"shape":[2,3],"data_offsets":[0,24]}}', "shape-object": b'{"w":{"dtype":"F32","shape":{},"data_offsets":[0,24]}}',
        "bom": b"\xef\xbb\xbf{" + w + b"}", "utf16": ("{" + w.decode() + "}").encode("utf-16"),
    }.items():
        one(f"S02-{label}", safetensors_file(raw, FLOATS))
    one("S02-unknown-field", safetensors_file(b'{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24],"color":"red"}}', FLOATS), "any")
    one("S02-empty-object", safetensors_file(b"{}"), "ok")
    one("S03-leading-space", safetensors_file(b"  {" + w + b"}", FLOATS), "any")
    one("S03-padding-space", safetensors_file(b"{" + w + b"}      ", FLOATS), "ok")
    one("S03-padding-nul", safetensors_file(b"{" + w + b"}\0\0\0", FLOATS))
    one("S04-duplicate", safetensors_file(b"{" + w + b"," + w + b"}", FLOATS))
    one("S04-duplicate-escaped", safetensors_file(b"{" + w + b"," + w.replace(b'"w"', b'"\\u0077"') + b"}", FLOATS))
    one("S04-duplicate-metadata", safetensors_file(b'{"__metadata__":{},"__metadata__":{},' + w + b"}", FLOATS))
    one("S04-duplicate-field", safetensors_file(b'{"w":{"dtype":"F16","dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}', FLOATS))
    for label, header, data in (
        ("hole", {"a": entry([2], 0, 8), "b": entry([2], 12, 20)}, bytes(20)), ("overlap", {"a": entry([2], 0, 8), "b": entry([2], 4, 12)}, bytes(12)),
        ("same-bytes", {"a": entry([2], 0, 8), "b": entry([2], 0, 8)}, bytes(8)), ("first-not-zero", {"a": entry([2], 4, 12)}, bytes(12)), ("trailing", GOOD_HEADER, FLOATS + b"evil"),
        ("trailing-page", GOOD_HEADER, FLOATS + bytes(4096)),
    ):
        one(f"S05-{label}", safetensors_file(header, data))
    one("S05-order-reversed", safetensors_file({"b": entry([2], 8, 16), "a": entry([2], 0, 8)}, bytes(16)), "ok")
    big = safetensors_file({"w": entry([4096], 0, 16384)}, bytes(range(256)) * 64)
    for label, missing in {"byte": 1, "page": 4096, "half": 8192, "all": 16384}.items():
        one(f"S06-short-by-{label}", big[:-missing], text=str(16384))
    for label, offsets in {"reversed": [24, 0], "end-2e63": [0, 1 << 63], "end-2e64": [0, 1 << 64], "begin-2e63": [(1 << 63) - 1, (1 << 63) + 23], "negative": [-24, 0], "float": [0.0, 24.0],
                           "text": ["0", "24"], "null": [None, 24], "nested": [[0], [24]], "bool": [False, 24]}.items():
        one(f"S07-offsets-{label}", safetensors_file({"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": offsets}}, FLOATS))
    for label, shape in {"overflow": [1 << 32, 1 << 32], "overflow-then-zero": [1 << 62, 1 << 62, 0], "zero-then-overflow": [0, 1 << 62, 1 << 62], "dim-2e63": [1 << 63], "dim-2e64": [1 << 64],
                         "negative": [-2, -3], "rank-100000": [1] * 100_000 + [6], "float": [2.0, 3.0], "wraps-to-size": [(1 << 62) + 6]}.items():
        one(f"S08-shape-{label}", safetensors_file({"w": {"dtype": "F32", "shape": shape, "data_offsets": [0, 24]}}, FLOATS))
    one("S08-rank-1000", safetensors_file({"w": entry([1] * 999 + [6], 0, 24)}, FLOATS), "any")
    one("S08-zero-times-huge", safetensors_file({"w": entry([0, 1 << 62, 1 << 62], 0, 0)}), "any")
    one("S09-size-mismatch", safetensors_file({"w": entry([2, 4], 0, 24)}, FLOATS))
    one("S09-dtype-unknown", safetensors_file({"w": entry([2, 3], 0, 24, "F33")}, FLOATS))
    one("S09-dtype-empty", safetensors_file({"w": entry([2, 3], 0, 24, "")}, FLOATS))
    one("S09-half-byte", safetensors_file({"w": entry([3], 0, 1, "F4")}, b"\0"))
    one("S09-dtype-lowercase", safetensors_file({"w": entry([2, 3], 0, 24, "f32")}, FLOATS))
    one("S10-empty-shares-offset", safetensors_file({"a": entry([0], 0, 0), "w": entry([2, 3], 0, 24), "z": entry([4, 0], 24, 24)}, FLOATS), "ok")
    one("S10-scalar", safetensors_file({"w": entry([], 0, 4)}, FLOATS[:4]), "ok")
    one("S11-metadata-number", safetensors_file({"__metadata__": {"a": 1}, **GOOD_HEADER}, FLOATS))
    one("S11-metadata-array", safetensors_file({"__metadata__": [], **GOOD_HEADER}, FLOATS))
    one("S11-metadata-20mb", safetensors_file({"__metadata__": {"a": "x" * 20_000_000}, **GOOD_HEADER}, FLOATS), "any")
    one("S12-deep", safetensors_file(b"[" * 1_000_000))
    one("S12-deep-objects", safetensors_file(b'{"a":' * 1_000_000))
    one("S12-deep-inside", safetensors_file(b'{"__metadata__":{"a":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}," + w + b"}", FLOATS))
    one("S12-300k-keys", safetensors_file({f"k{i}": entry([0], 0, 0) for i in range(300_000)}), "any")
    one("S12-one-key-30mb", safetensors_file({"k" * 30_000_000: entry([2, 3], 0, 24)}, FLOATS), "any")
    one("S12-names-of-a-megabyte", safetensors_file({"a" * 1_000_000: entry([2], 0, 8), "b" * 300_000: entry([2], 8, 16), "w": entry([2], 16, 24)}, FLOATS), "ok")
    for label, key in {"surrogate": b"\\ud800", "raw-nul": b"\0", "raw-control": b"\x01", "bad-escape": b"\\x41"}.items():
        one(f"S13-key-{label}", safetensors_file(b"{" + w.replace(b'"w"', b'"' + key + b'"') + b"}", FLOATS))
    for label, key in {"nul": b"a\\u0000b", "escape": b"\\u001b[2J\\u001b]0;owned\\u0007", "newline": b"w\\nverdict: safe", "bidi": "\u202egnp.exe".encode(), "path": b"../../etc/passwd", "empty": b"", "metadata-like": b"__metadata"}.items():
        one(f"S13-shown-{label}", safetensors_file(b"{" + w.replace(b'"w"', b'"' + key + b'"') + b"}", FLOATS), "any")
    for label, number in {"exponent": b"24e0", "fraction": b"24.0", "leading-zero": b"024", "minus-zero": b"-0", "2e64": b"18446744073709551616", "plus": b"+24", "hex": b"0x18", "nan": b"NaN"}.items():
        raw = b'{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,' + number + b"]}}"
        one(f"S14-number-{label}", safetensors_file(raw, FLOATS))
    one("S15-dtype-flipped", safetensors_file({"w": entry([2, 3], 0, 24, "I32")}, FLOATS), "ok")


def index_of(weight_map, total=48):
    return json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}).encode()


def indices(corpus):
    index = "model.safetensors.index.json"
    parts = {"a.safetensors": safetensors_file({"a": entry([2, 3], 0, 24)}, FLOATS), "b.safetensors": safetensors_file({"b": entry([2, 3], 0, 24)}, FLOATS)}
    good = {"a": "a.safetensors", "b": "b.safetensors"}

    def tree(id, weight_map, expect="error", code=BAD + ("unsafe", "not-found", "permission", "io"), rule=FILES + ("security.path",), files=parts, raw=None, **more):
        return corpus.tree(id, {**files, index: index_of(weight_map) if raw is None else raw}, expect, code, rule, **more)

    tree("J00-good", good, "ok")
    for label, path in {"up": "../b.safetensors", "absolute": "/etc/passwd", "middle": "x/../../b.safetensors", "drive": "C:\\b.safetensors", "backslash": "..\\b.safetensors", "empty": "", "dot": ".",
                        "slash": "b.safetensors/", "nul": "b.safetensors\0", "double": "x//b.safetensors", "proc": "/proc/self/environ", "long": "n/" * 5000 + "b"}.items():
        tree(f"J01-{label}", {**good, "b": path})
    directory = tree("J01-up-there", {**good, "b": "../J00-good/b.safetensors"}, text="J00-good")
    assert os.path.isdir(directory)
    for label, value in {"number": 1, "null": None, "list": ["b.safetensors"], "object": {}}.items():
        tree(f"J01-value-{label}", {**good, "b": value})

    def without_b(id, make, expect="error", **more):
        directory = tree(id, good, expect, files={"a.safetensors": parts["a.safetensors"]}, **more)
        make(os.path.join(directory, "b.safetensors"))

    without_b("J02-fifo", os.mkfifo)
    without_b("J02-dev-zero", lambda p: os.symlink("/dev/zero", p))
    without_b("J02-directory", os.mkdir)

    def bind(path):
        here = os.getcwd()
        os.chdir(os.path.dirname(path))
        s = socket.socket(socket.AF_UNIX)
        s.bind(os.path.basename(path))
        s.close()
        os.chdir(here)

    without_b("J02-socket", bind)
    without_b("J03-link-outside", lambda p: os.symlink("../J00-good/b.safetensors", p))
    without_b("J03-link-absolute", lambda p: os.symlink(os.path.join(corpus.root, "J00-good", "b.safetensors"), p))
    without_b("J03-link-loop", lambda p: os.symlink("b.safetensors", p))
    without_b("J03-link-dangling", lambda p: os.symlink("nowhere", p))

    def inside(path):
        folder = os.path.join(os.path.dirname(path), "blobs")
        os.makedirs(folder)
        with open(os.path.join(folder, "b"), "wb") as out:
            out.write(parts["b.safetensors"])
        os.symlink("blobs/b", path)

    without_b("J03-link-inside", inside, "ok")
    without_b("J03-hard-link", lambda p: os.link(os.path.join(corpus.root, "J00-good", "b.safetensors"), p), "ok")

    # A Hugging Face cache: snapshots of links to blobs, which is where most users' files are.
    directory = corpus.directory("J03-cache")
    repo = os.path.join(directory, "models--org--name")
    snapshot = os.path.join(repo, "snapshots", "0" * 40)
    os.makedirs(os.path.join(repo, "blobs"))
    os.makedirs(snapshot)
    for number, (file_name, data) in enumerate({**parts, index: index_of(good)}.items()):
        with open(os.path.join(repo, "blobs", f"{number:064x}"), "wb") as out:
            out.write(data)
        os.symlink(f"../../blobs/{number:064x}", os.path.join(snapshot, file_name))
    base = os.path.relpath(snapshot, corpus.root)
    corpus.row("J03-cache", base, "ok")
    corpus.row("J03-cache-file", base + "/a.safetensors", "ok")
    corpus.row("J03-cache-index", base + "/" + index, "ok")

    tree("J04-missing", good, files={"a.safetensors": parts["a.safetensors"]}, text="b.safetensors")
    tree("J04-unlisted-file", {"a": "a.safetensors"}, "warn", rule=("file.unreferenced", "file.stale"))
    tree("J04-tensor-absent", {**good, "c": "b.safetensors"}, text="c")
    tree("J04-tensor-unlisted", {"a": "a.safetensors"}, "warn", files={"a.safetensors": safetensors_file({"a": entry([2, 3], 0, 24), "x": entry([1], 24, 28)}, FLOATS + bytes(4))}, rule=())
    tree("J04-tensor-twice", good, "any", files={"a.safetensors": safetensors_file({"a": entry([1], 0, 4), "b": entry([1], 4, 8)}, bytes(8)), "b.safetensors": parts["b.safetensors"]})
    tree("J04-key-twice", good, raw=b'{"metadata":{},"weight_map":{"a":"a.safetensors","a":"b.safetensors"}}')
    for label, data in {"empty": b"", "lfs": LFS_POINTER, "html": HTML_PAGE, "zeros": bytes(1000), "cut": parts["b.safetensors"][:-4], "is-torch": torch_file()}.items():
        tree(f"J04-part-{label}", good, files={**parts, "b.safetensors": data})
    tree("J05-total-size", None, "any", raw=index_of(good, 999))
    tree("J05-total-size-2e63", None, "any", raw=index_of(good, 1 << 63))
    tree("J05-total-size-text", None, "any", raw=index_of(good, "many"))
    for label, raw in {"cut": index_of(good)[:-3], "empty": b"", "not-json": b"no", "array": b"[]", "no-map": b'{"metadata":{}}', "map-array": b'{"weight_map":[]}', "lfs": LFS_POINTER, "html": HTML_PAGE,
                       "deep": b'{"weight_map":' + b"[" * 1_000_000}.items():
        tree(f"J05-index-{label}", None, raw=raw)
        corpus.row(f"J05-index-{label}-by-name", f"J05-index-{label}/{index}", "error", BAD + ("not-found",))
    tree("J05-map-empty", {}, "any")
    corpus.tree("J05-two-indices", {**parts, index: index_of(good), "other.safetensors.index.json": index_of({"a": "b.safetensors"})}, "any", BAD)
    many = json.dumps({"metadata": {}, "weight_map": {f"k{i}": "a.safetensors" for i in range(200_000)}}).encode()
    tree("J05-200k-entries", None, raw=many)

    # The path itself.
    directory = corpus.directory("J06-paths")
    os.mkfifo(os.path.join(directory, "fifo.safetensors"))
    corpus.row("J06-fifo", "J06-paths/fifo.safetensors", "error", ("unsafe", "unsupported"))
    os.symlink("/dev/zero", os.path.join(directory, "zero.pt"))
    corpus.row("J06-dev-zero", "J06-paths/zero.pt", "error", ("unsafe", "unsupported"))
    os.symlink("loop", os.path.join(directory, "loop"))
    corpus.row("J06-loop", "J06-paths/loop", "error", ("unsafe", "not-found", "io"))
    corpus.row("J06-missing", "J06-paths/nothing", "error", "not-found")
    corpus.row("J06-below-a-file", "J06-paths/plain/x", "error", ("not-found", "io", "unsafe"))
    with open(os.path.join(directory, "plain"), "wb") as out:
        out.write(b"plain text\n")
    corpus.row("J06-text", "J06-paths/plain", "error", "unsupported")
    os.mkdir(os.path.join(directory, "empty"))
    corpus.row("J06-empty-directory", "J06-paths/empty", "error", ("unsupported", "not-found"))
    os.mkdir(os.path.join(directory, "closed"))
    corpus.row("J06-mixture", "J06-paths", "error", ("unsupported", "unsafe"))
    assert stat.S_ISFIFO(os.stat(os.path.join(directory, "fifo.safetensors")).st_mode)


def sizes(corpus):
    """Sparse files and big directories: time and memory must not follow the sizes."""
    directory = corpus.directory("R03-sparse")
    count = 1 << 38
    with open(os.path.join(directory, "model.safetensors"), "wb") as out:
        out.write(safetensors_file({"w": entry([count], 0, 4 * count)}))
        out.truncate(out.tell() + 4 * count)
    corpus.row("R03-sparse", "R03-sparse/model.safetensors", "ok", rss_mib=64)
    with open(os.path.join(directory, "zeros.bin"), "wb") as out:
        out.truncate(1 << 40)
    corpus.row("R03-zeros", "R03-sparse/zeros.bin", "error", REFUSED, rss_mib=64)
    files = {f"part-{i:05d}": b"" for i in range(20_000)}
    corpus.tree("R04-20k-files", {**files, "model.safetensors": safetensors_file(GOOD_HEADER, FLOATS)}, "any", BAD)
    directory = corpus.tree("R04-odd-names", {"model.safetensors": safetensors_file(GOOD_HEADER, FLOATS), "\x1b[2J\nx": b""}, "any", BAD)
    open(os.path.join(directory.encode(), b"\xff\xfe.bin"), "wb").close()


def write(corpus):
    for part in (headers, indices, sizes):
        part(corpus)

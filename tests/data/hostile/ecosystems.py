"""Directories of Paddle, ColossalAI and OLMo: metadata that lies, names that lead elsewhere, keys that call."""

import base64
import json
import pickle
import struct

from hostile_bytes import *
from pickles import HTML_PAGE, LFS_POINTER, UNSAFE, evil

PADDLE = "paddle.distributed.flex_checkpoint.dcp.metadata"


# ------------------------------------------------------------------ Paddle

def array(shape, values):
    """numpy's pickle of a float32 array."""
    dtype = call(name("numpy", "dtype"), text("f4"), b"\x89", b"\x88") + tuple_of(integer(3), text("<"), NONE, NONE, NONE, integer(-1), integer(-1), integer(0)) + BUILD
    raw = struct.pack("<%df" % len(values), *values)
    empty = call(name("numpy._core.multiarray", "_reconstruct"), name("numpy", "ndarray"), numbers((0,)), b"C\x01b")
    return empty + tuple_of(integer(1), numbers(shape), dtype, b"\x89", b"B" + struct.pack("<I", len(raw)) + raw) + BUILD


def rank_file(*arrays):
    """A .distcp: arrays by key, and the table of names."""
    pairs = [(text(key), array(shape, values)) for key, shape, values in arrays]
    table = dict_of(*[(text(key), text("generated")) for key, _, _ in arrays])
    return PROTO4 + dict_of(*pairs, (text("StructuredToParameterName@@"), table)) + STOP


def paddle_dims(values):
    return values if isinstance(values, bytes) else numbers(values)


def piece(offset, shape, whole=(4, 2), dtype=text("float32"), flat=None):
    return instance(PADDLE, "LocalTensorMetadata", fields(
        global_offset=paddle_dims(offset), local_shape=paddle_dims(shape), dtype=dtype, global_shape=paddle_dims(whole),
        is_flattened=b"\x88" if flat else b"\x89", flattened_range=numbers(flat) if flat else NONE))


def index(key, offset, shape, flat=None, replica=integer(0)):
    return instance(PADDLE, "LocalTensorIndex", fields(
        tensor_key=key if isinstance(key, bytes) else text(key), global_offset=paddle_dims(offset), is_flattened=b"\x88" if flat else b"\x89",
        flattened_range=numbers(flat) if flat else NONE, replica_id=replica, local_shape=paddle_dims(shape)))


HALVES = [((0, 0), (2, 2)), ((2, 0), (2, 2))]
RANKS = {"0_0.distcp": rank_file(("w", (2, 2), (0, 1, 2, 3))), "1_0.distcp": rank_file(("w", (2, 2), (4, 5, 6, 7)))}


def metadata(pieces=None, entries=None, tensors=None, mapping=NONE):
    pieces = [piece(*half) for half in HALVES] if pieces is None else pieces
    entries = [(index("w", *half), text("%d_0.distcp" % i)) for i, half in enumerate(HALVES)] if entries is None else entries
    tensors = [(text("w"), LIST + MARK + b"".join(pieces) + APPENDS)] if tensors is None else tensors
    return PROTO4 + instance(PADDLE, "Metadata", fields(state_dict_metadata=dict_of(*tensors), storage_metadata=dict_of(*entries), flat_mapping=mapping)) + STOP


def paddle(corpus):
    def one(id, expect="error", code=(), rule=(), files=None, **more):
        kept = {k: more.pop(k) for k in ("text", "rss_mib", "seconds", "level", "opens") if k in more}
        data = more.pop("data", None)
        corpus.tree(id, {**(RANKS if files is None else files), "0.metadata": metadata(**more) if data is None else data}, expect, code, rule, **kept)

    def second(offset, shape, **fields):
        return {"pieces": [piece(*HALVES[0]), piece(offset, shape, **fields)],
                "entries": [(index("w", *HALVES[0]), text("0_0.distcp")), (index("w", offset, shape, fields.get("flat")), text("1_0.distcp"))]}

    def files_of(second):
        return [(index("w", *HALVES[0]), text("0_0.distcp")), (index("w", *HALVES[1]), text(second))]

    inconsistent = "meta.inconsistent"
    one("E01-good", "ok", level="values")
    for label, data in {"empty": b"", "lfs": LFS_POINTER, "html": HTML_PAGE, "none": PROTO4 + NONE + STOP, "dict": PROTO4 + DICT + STOP, "state-dict": RANKS["0_0.distcp"],
                        "deep": PROTO4 + EMPTY_TUPLE + TUPLE1 * 1_000_000 + STOP, "marks": PROTO4 + MARK * 1_000_000 + STOP, "text-2e63": PROTO4 + b"\x8d" + struct.pack("<Q", 1 << 63) + STOP,
                        "frame-2e62": PROTO4 + FRAME + struct.pack("<Q", 1 << 62) + DICT + STOP, "no-stop": metadata()[:-1], "get-of-nothing": PROTO4 + b"j\xff\xff\xff\x7f" + STOP}.items():
        one(f"E02-metadata-{label}", code=("damaged", "limit", "unsupported"), data=data)
    for label, (offset, shape) in {"offset-2e63": (((1 << 63), 0), (2, 2)), "offset-2e62": ((1 << 62, 0), (2, 2)), "shape-2e64": ((2, 0), (1 << 64, 2)), "shape-2e62": ((2, 0), (1 << 62, 1 << 62)),
                                   "offset-negative": ((-2, 0), (2, 2)), "offset-text": (tuple_of(text("2"), integer(0)), (2, 2)), "offset-none": (NONE, (2, 2)), "ranks-differ": ((2, 0, 0), (2, 2))}.items():
        one(f"E03-{label}", rule=inconsistent, opens=True, **second(offset, shape))
    one("E03-offset-past-end", rule="coverage.bounds", opens=True, **second((3, 0), (2, 2)))
    one("E03-shape-too-large", rule="coverage.bounds", opens=True, **second((2, 0), (3, 2)))
    one("E03-shape-2e40", code="damaged", **second((2, 0), (1 << 40, 1 << 40)))
    one("E03-shape-negative", rule="coverage.gap", opens=True, **second((2, 0), (-2, 2)))
    one("E03-shape-zero", rule="coverage.gap", opens=True, **second((2, 0), (0, 2)))
    one("E03-rank-65", rule=inconsistent, opens=True, **second((0,) * 65, (1,) * 65))
    one("E03-whole-shrunken", rule="coverage.bounds", opens=True, pieces=[piece(*half, whole=(3, 2)) for half in HALVES])
    one("E03-whole-disagrees", rule=inconsistent, opens=True, pieces=[piece(*HALVES[0]), piece(*HALVES[1], whole=(6, 2))])
    one("E03-whole-2e62", rule=inconsistent, opens=True, pieces=[piece(*half, whole=(1 << 62, 1 << 62)) for half in HALVES])
    one("E03-whole-of-other-rank", rule=inconsistent, opens=True, pieces=[piece(*HALVES[0]), piece(*HALVES[1], whole=(4, 2, 1))])
    one("E03-overlap", rule="coverage.overlap", opens=True, **second((1, 0), (2, 2)))
    one("E03-dtype-unknown", "warn", rule=inconsistent, pieces=[piece(*half, dtype=text("float33")) for half in HALVES], text="float33")
    one("E03-dtype-number", rule=inconsistent, opens=True, pieces=[piece(*HALVES[0]), piece(*HALVES[1], dtype=integer(1))])
    one("E03-dtypes-differ", rule=inconsistent, opens=True, pieces=[piece(*HALVES[0]), piece(*HALVES[1], dtype=text("bfloat16"))])
    for label, flat in {"past-end": (0, 5), "2e62": (0, 1 << 62), "reversed": (3, 1), "negative": (-1, 2), "start-past-end": (4, 6)}.items():
        one(f"E04-range-{label}", rule=inconsistent, opens=True, **second((2, 0), (2, 2), flat=flat))
    one("E04-range-short", rule=inconsistent, opens=True, **second((2, 0), (2, 2), flat=(0, 3)), level="values")
    for label, bad in {"up": "../E01-good/1_0.distcp", "absolute": "/etc/passwd", "middle": "x/../../E01-good/1_0.distcp", "nul": "1_0.distcp\0", "escape": "\x1b[2J\n1_0.distcp", "empty": "",
                       "dot": "."}.items():
        one(f"E05-path-{label}", rule=("security.path", "file.missing"), opens=True, entries=files_of(bad))
    one("E05-missing-rank", rule="file.missing", opens=True, files={"0_0.distcp": RANKS["0_0.distcp"]}, text="1_0.distcp")
    one("E05-entry-missing", rule=inconsistent, opens=True, entries=files_of("1_0.distcp")[:1])
    one("E05-entry-of-nothing", "warn", rule=inconsistent, entries=[*files_of("1_0.distcp"), (index("x", (0,), (2,)), text("1_0.distcp"))])
    one("E05-entry-key-number", code="damaged", entries=[*files_of("1_0.distcp")[:1], (index(integer(1), *HALVES[1]), text("1_0.distcp"))])
    one("E05-entry-file-number", rule=inconsistent, opens=True, entries=[*files_of("1_0.distcp")[:1], (index("w", *HALVES[1]), integer(1))])
    one("E05-entry-replica-2e70", "any", code=("damaged", "limit"), entries=[*files_of("1_0.distcp")[:1], (index("w", *HALVES[1], replica=integer(1 << 70)), text("1_0.distcp"))])
    one("E05-ids-disagree", rule="file.missing", opens=True, entries=[(index("w", *half), text("%d_7.distcp" % i)) for i, half in enumerate(HALVES)], text="_7.distcp")
    one("E05-other-save", rule=inconsistent, opens=True, files={**RANKS, "1_0.distcp": rank_file(("other", (2, 2), (4, 5, 6, 7)))})
    one("E05-other-shape", rule=inconsistent, opens=True, files={**RANKS, "1_0.distcp": rank_file(("w", (4, 1), (4, 5, 6, 7)))})
    one("E05-cut-array", rule=inconsistent, opens=True, files={**RANKS, "1_0.distcp": rank_file(("w", (2, 2), (4, 5)))})
    one("E05-huge-array", rule=inconsistent, opens=True, files={**RANKS, "1_0.distcp": rank_file(("w", (1 << 40, 1 << 40), (4, 5)))})
    one("E05-cut-file", rule="file.truncated", opens=True, files={**RANKS, "1_0.distcp": RANKS["1_0.distcp"][:-40]})
    one("E05-stale-rank", "warn", rule="file.stale", files={**RANKS, "7_0.distcp": RANKS["1_0.distcp"]})
    one("E05-lock", "warn", rule="file.lock", files={**RANKS, "0.metadata.lock": b""})
    corpus.tree("E05-no-metadata-but-lock", {**RANKS, "0.metadata.lock": b""}, "error", "not-found", text="0.metadata.lock")
    # Calls, and classes that are none of Paddle's.
    one("E06-call-first", data=PROTO4 + evil(corpus) + POP + metadata()[2:], rule=UNSAFE, opens=True, text="posix.system")
    one("E06-call-root", code=("damaged", "unsafe"), data=PROTO4 + evil(corpus) + STOP)
    one("E06-call-offset", rule=(inconsistent, UNSAFE), opens=True, **second(evil(corpus), (2, 2)))
    one("E06-call-mapping", rule=UNSAFE, opens=True, mapping=evil(corpus), text="posix.system")
    one("E06-call-in-rank-file", rule=(UNSAFE, inconsistent, "file.truncated"), opens=True, files={**RANKS, "1_0.distcp": PROTO4 + dict_of((text("w"), evil(corpus))) + STOP})
    one("E06-class-of-os", code=("damaged", "unsafe"), data=metadata().replace(PADDLE.encode() + b"\nMetadata\n", b"posix\nsystem\n", 1))
    one("E06-class-of-piece", rule=(inconsistent, UNSAFE), data=metadata().replace(PADDLE.encode() + b"\nLocalTensorMetadata\n", b"posix\nsystem\n", 1), opens=True)


# ------------------------------------------------------------------ ColossalAI

def rank_json(rank, entry=None, extra=None, **top):
    one = {"offsets": [2 * rank, 0], "lengths": [2, 3], "global_shape": [4, 3], "file": "model-dist-%05d-shard-00000.safetensors" % rank, "rank": rank, **(entry or {})}
    return {"checkpoint_version": "1.0", "total_size": 0.1, "metadata": {"w": one, **(extra or {})}, **top}


def colossalai(corpus):
    part = safetensors_file({"w": entry((2, 3), 0, 24)}, FLOATS)
    meta = "pytorch_model-meta-dist-%05d.index.json"
    good = {meta % r: json.dumps(rank_json(r), indent=4).encode() for r in (0, 1)}
    good.update({"model-dist-%05d-shard-00000.safetensors" % r: part for r in (0, 1)})

    def one(id, expect="error", code=(), rule=(), second=None, files=None, drop=(), raw=None, **more):
        tree = {**good, **(files or {})}
        if second is not None:
            tree[meta % 1] = json.dumps(rank_json(1, second)).encode()
        if raw is not None:
            tree[meta % 1] = raw
        for gone in drop:
            del tree[gone]
        corpus.tree(id, tree, expect, code, rule, **more)

    one("C01-good", "ok", level="values")
    for label, bad in {"up": "../C01-good/model-dist-00001-shard-00000.safetensors", "absolute": "/etc/passwd", "only-dots": "..", "slash": "/", "empty": "", "nul": "a\0b", "escape": "\x1b[2J",
                       "long": "n/" * 5000}.items():
        rule = "file.missing" if label == "escape" else "security.path"  # an odd name, but one of this directory
        one(f"C02-path-{label}", "warn" if label == "up" else "error", rule=rule, second={"file": bad}, **({} if label == "up" else {"opens": True}))
    one("C02-path-of-another-machine", "ok", second={"file": "/home/user/run/model-dist-00001-shard-00000.safetensors"}, level="values")
    for label, second in {"offsets-negative": {"offsets": [-2, 0]}, "offsets-2e63": {"offsets": [1 << 63, 0]}, "offsets-2e70": {"offsets": [1 << 70, 0]}, "offsets-float": {"offsets": [2.5, 0]},
                          "offsets-text": {"offsets": "2"}, "offsets-null": {"offsets": None}, "lengths-negative": {"lengths": [-2, 3]}, "lengths-2e62": {"lengths": [1 << 62, 1 << 62]},
                          "lengths-rank": {"lengths": [2]}, "shape-2e62": {"global_shape": [1 << 62, 1 << 62]}, "file-number": {"file": 1}, "file-null": {"file": None}}.items():
        one(f"C03-{label}", code=("damaged", "limit"), second=second)
    one("C03-shape-disagrees", rule="meta.inconsistent", second={"global_shape": [6, 3]}, opens=True)
    one("C03-offset-past-end", rule="coverage.bounds", second={"offsets": [3, 0]}, opens=True)
    one("C03-overlap", rule="coverage.overlap", second={"offsets": [1, 0]}, opens=True)
    one("C03-same-piece", "error", rule="coverage.gap", second={"offsets": [0, 0]}, opens=True)
    one("C03-lengths-not-of-file", rule="meta.inconsistent", second={"lengths": [1, 3], "offsets": [3, 0]}, opens=True)
    one("C03-rank-2e70", "any", code=("damaged", "limit"), second={"rank": 1 << 70})
    one("C03-rank-text", "any", code=("damaged", "limit"), second={"rank": "1"})
    one("C04-deep", code=("damaged", "limit"), raw=b"[" * 1_000_000)
    one("C04-deep-metadata", code=("damaged", "limit"), raw=b'{"metadata":' + b'{"a":' * 100_000)
    one("C04-cut", code="damaged", raw=good[meta % 1][:-40])
    one("C04-empty", code="damaged", raw=b"")
    one("C04-html", code="damaged", raw=HTML_PAGE)
    one("C04-lfs", code="damaged", raw=LFS_POINTER)
    one("C04-list", code="damaged", raw=b"[]")
    one("C04-duplicate-tensor", code="damaged", raw=good[meta % 1].replace(b'"metadata": {', b'"metadata": {"w": {"offsets":[0,0],"lengths":[2,3],"global_shape":[4,3],"file":"x","rank":1},', 1))
    one("C04-duplicate-field", "any", code="damaged", raw=good[meta % 1].replace(b'"rank": 1', b'"rank": 1, "rank": 0', 1))
    one("C04-not-utf8", "any", code="damaged", raw=good[meta % 1].replace(b'"w"', b'"\xff"', 1))
    one("C04-tail", code="damaged", raw=good[meta % 1] + b"x")
    one("C04-no-metadata", rule=("coverage.gap", "meta.inconsistent"), code="damaged", raw=b'{"checkpoint_version": "1.0"}')
    one("C05-missing-weights", rule="file.missing", drop=["model-dist-00001-shard-00000.safetensors"], text="model-dist-00001", opens=True)
    one("C05-missing-rank", rule=("file.missing", "coverage.gap"), drop=[meta % 1, "model-dist-00001-shard-00000.safetensors"], opens=True)
    one("C05-cut-weights", rule="file.truncated", files={"model-dist-00001-shard-00000.safetensors": part[:-4]}, opens=True)
    one("C05-weights-of-other-dtype", rule="meta.inconsistent", files={"model-dist-00001-shard-00000.safetensors": safetensors_file({"w": entry((2, 3), 0, 24, "I32")}, FLOATS)}, opens=True)
    one("C05-weights-without-tensor", rule="meta.inconsistent", files={"model-dist-00001-shard-00000.safetensors": safetensors_file({"v": entry((2, 3), 0, 24)}, FLOATS)}, opens=True)
    # Rank 3 of a larger run of other cuts: its pieces contradict.
    stale = {meta % 3: json.dumps(rank_json(3, {"offsets": [3, 0], "lengths": [1, 3]})).encode(),
             "model-dist-00003-shard-00000.safetensors": safetensors_file({"w": entry((1, 3), 0, 12)}, FLOATS[:12])}
    one("C06-stale-rank", rule=("file.stale", "coverage.overlap"), files=stale, opens=True)
    # A parameter without dimensions: the loader of the pull request makes it 0, we read it.
    scalar = {"s": {"offsets": [], "lengths": [], "global_shape": [], "file": "model-dist-00000-shard-00000.safetensors", "rank": 0}}
    both = {meta % 0: json.dumps(rank_json(0, extra=scalar)).encode(), "model-dist-00000-shard-00000.safetensors": safetensors_file({"w": entry((2, 3), 0, 24), "s": entry((), 24, 28)}, FLOATS + FLOATS[:4])}
    one("C07-scalar", "ok", files=both, level="values")
    both[meta % 0] = json.dumps(rank_json(0, extra={"s": {**scalar["s"], "offsets": [0]}})).encode()
    one("C07-scalar-with-offset", code="damaged", files=both)


# ------------------------------------------------------------------ OLMo

def key(path, flag=False):
    return base64.urlsafe_b64encode(pickle.dumps((path, flag), 4)).decode()


def raw_key(data):
    return base64.urlsafe_b64encode(data).decode()


def olmo_header(*entries, data=None):
    header, body = {}, b""
    for label, dtype, shape, raw in entries:
        header[label] = entry(shape, len(body), len(body) + len(raw), dtype)
        body += raw
    return safetensors_file(header, body)


def olmo(corpus):
    weight = (key(("w",)), "F32", (2, 3), FLOATS)

    def one(id, expect, code=(), rule=(), *entries, **more):
        corpus.tree(id, {"model.safetensors": olmo_header(weight, *entries), "config.yaml": b"run_name: x\n"}, expect, code, rule, **more)

    one("O01-good", "ok", (), (), (key(("deep", 0, "x")), "F32", (1,), FLOATS[:4]), (key(("lr",), True), "U8", (len(pickle.dumps(0.5, 4)),), pickle.dumps(0.5, 4)), level="values")
    refused = ("damaged", "unsupported", "unsafe", "limit")
    for label, bad in {"call": PROTO4 + tuple_of(tuple_of(evil(corpus)), b"\x89") + STOP, "global": PROTO4 + tuple_of(tuple_of(name("posix", "system")), b"\x89") + STOP,
                       "global-as-flag": PROTO4 + tuple_of(tuple_of(text("a")), name("posix", "system")) + STOP}.items():
        one(f"O02-key-{label}", "error", "damaged", (), (raw_key(bad), "F32", (1,), FLOATS[:4]), text="posix")
    for label, bad in {"truncated": pickle.dumps((("a",), False), 4)[:-3], "list": PROTO4 + tuple_of(LIST, b"\x89") + STOP, "no-flag": PROTO4 + tuple_of(tuple_of(text("a"))) + STOP,
                       "flag-number": PROTO4 + tuple_of(tuple_of(text("a")), integer(1)) + STOP, "three": PROTO4 + tuple_of(tuple_of(text("a")), b"\x89", b"\x89") + STOP, "empty-path": pickle.dumps(((), False), 4),
                       "text": pickle.dumps("abc", 4), "deep": PROTO4 + EMPTY_TUPLE + TUPLE1 * 20_000 + STOP, "tail": pickle.dumps((("a",), False), 4) + b"x"}.items():
        one(f"O03-key-{label}", "error", refused, (), (raw_key(bad), "F32", (1,), FLOATS[:4]))
    one("O03-key-broken-base64", "error", refused, (), (key(("abc",))[:-5] + "*****", "F32", (1,), FLOATS[:4]))
    one("O03-key-without-padding", "any", refused, ("meta.inconsistent",), (key(("ab",)).rstrip("="), "F32", (1,), FLOATS[:4]))
    one("O03-leaf-and-branch", "any", refused, ("meta.inconsistent", "meta.duplicate"), (key(("w", "x")), "F32", (1,), FLOATS[:4]))
    one("O03-one-name-twice", "warn", (), "meta.duplicate", (key((0,)), "F32", (1,), FLOATS[:4]), (key(("0",)), "F32", (1,), FLOATS[:4]))
    call_value = PROTO4 + evil(corpus) + STOP
    one("O04-value-call", "error", (), UNSAFE, (key(("v",), True), "U8", (len(call_value),), call_value), opens=True, text="posix.system")
    one("O04-value-cut", "error", (), "meta.inconsistent", (key(("v",), True), "U8", (4,), b"\x80\x04]"+b"("), opens=True)
    one("O04-value-no-bytes", "error", (), "meta.inconsistent", (key(("v",), True), "F32", (1,), FLOATS[:4]), opens=True)
    deep = PROTO4 + LIST * 200_000 + APPEND * 199_999 + STOP
    one("O04-value-deep", "error", (), "meta.inconsistent", (key(("v",), True), "U8", (len(deep),), deep), opens=True)
    corpus.tree("O05-plain-cut", {"model.safetensors": olmo_header(weight)[:-4], "config.yaml": b"x: 1\n"}, "error", ("damaged",), ("file.truncated",))

    # `local`: flat parameters of two ranks, 6 elements of "w" in halves, an empty padding.
    def info(inside=True, offset=0, count=3, first=0, last=2):
        shard = name("torch.distributed.fsdp.flat_param", "_ShardParamInfo")
        items = (b"\x88" if inside else b"\x89", integer(offset), integer(count), integer(first), integer(last))
        return shard + tuple_of(*items) + NEWOBJ

    def rank_pt(shard, data=3, shapes=((2, 3),), numels=(6,), padded=0, names=("w",)):
        flat = {"flat_param.data": tensor(storage(numel=data), 0, (data,), (1,)), "flat_param._fqns": tuple_of(*[text(n) for n in names]),
                "flat_param._shapes": tuple_of(*[call(name("torch", "Size"), numbers(s)) for s in shapes]), "flat_param._numels": numbers(numels),
                "flat_param._shard_numel_padded": integer(padded), "flat_param._shard_param_infos": LIST + MARK + shard + APPENDS}
        handle = dict_of(*[(text(k), v) for k, v in flat.items()])
        module = dict_of((text("name"), text("")), (text("handles"), LIST + MARK + handle + APPENDS))
        return torch_file(PROTO2 + dict_of((text("modules"), LIST + MARK + module + APPENDS)) + STOP, {"0": FLOATS[:4 * data]})

    def local(id, expect="error", code=(), rule=(), world=b"world_size: 2\n", drop=(), second=None, **more):
        tree = {"model/rank0.pt": rank_pt(info()), "model/rank1.pt": rank_pt(info(first=3, last=5)) if second is None else second, "metadata.yaml": world, "config.yaml": b"run_name: x\n"}
        for gone in drop:
            del tree[gone]
        corpus.tree(id, tree, expect, code, rule, **more)

    wrong = ("meta.inconsistent", "coverage.gap", "coverage.overlap")
    local("O06-local-good", "ok", level="values")
    local("O06-local-missing-rank", rule=("file.missing", "coverage.gap"), drop=["model/rank1.pt"], opens=True)
    for label, second in {"count-too-large": info(count=300, first=3, last=302), "count-2e62": info(count=1 << 62, first=3, last=5), "count-negative": info(count=-3, first=3, last=5), "offset-past-end": info(offset=3, first=3, last=5),
                          "offset-2e63": info(offset=(1 << 63) - 1, first=3, last=5), "last-2e63": info(first=3, last=(1 << 63) - 1), "first-negative": info(first=-1, last=1), "reversed": info(first=5, last=3),
                          "count-lies": info(count=2, first=3, last=5), "same-again": info(first=0, last=2), "gap": info(count=2, first=4, last=5), "call": evil(corpus)}.items():
        local(f"O07-local-{label}", code=("damaged", "unsafe", "limit"), rule=(*wrong, UNSAFE), second=rank_pt(second))
    local("O07-local-shape-2e62", code=("damaged", "limit"), rule=wrong, second=rank_pt(info(first=3, last=5), shapes=((1 << 62, 1 << 62),)))
    local("O07-local-numel-lies", code=("damaged", "limit"), rule=wrong, second=rank_pt(info(first=3, last=5), numels=(7,)))
    local("O07-local-shapes-disagree", code=("damaged", "limit"), rule=wrong, second=rank_pt(info(first=3, last=5), shapes=((3, 2),)))
    local("O07-local-more-names", code=("damaged", "limit"), rule=wrong, second=rank_pt(info(first=3, last=5), names=("w", "v")))
    local("O07-local-padding-too-large", code=("damaged", "limit"), rule=wrong, second=rank_pt(info(first=3, last=5), padded=1 << 40))
    local("O07-local-padding-not-zero", code=("damaged", "limit"), rule=wrong, second=rank_pt(info(count=2, first=3, last=4), padded=1), level="values")
    local("O08-world-2e40", code=("damaged", "limit"), rule=("file.missing", "rank.missing", "meta.inconsistent"), world=b"world_size: 1099511627776\n")
    local("O08-world-negative", "any", code=("damaged", "limit"), world=b"world_size: -1\n")
    local("O08-world-one", "error", rule=("file.stale", "coverage.gap", "meta.inconsistent"), world=b"world_size: 1\n")


def write(corpus):
    paddle(corpus)
    colossalai(corpus)
    olmo(corpus)

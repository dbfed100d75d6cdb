"""Bad pickles: inside torch.save files (zip and legacy) and as bytes that pretend to be one."""

import struct

from hostile_bytes import *

UNSAFE = "security.global"
REFUSED = ("damaged", "unsupported", "limit")


def payload(corpus):
    """Arguments of a system() call that leaves a trace when anything ever makes it."""
    return text("touch " + corpus.marker)


def evil(corpus, module="posix", attribute="system"):
    return call(name(module, attribute), payload(corpus))


def archive(corpus, id, pickle, expect, code=(), rule=(), **more):
    corpus.file(id, "model.pt", torch_file(pickle), expect, code, rule, **more)


def not_pickles(corpus):
    corpus.file("P01-empty", "model.pt", b"", "error", REFUSED, text="empty")
    corpus.file("P01-one-byte", "model.pt", b"\x80", "error", REFUSED)
    corpus.file("P01-only-proto", "model.pt", PROTO2, "error", REFUSED)
    archive(corpus, "P01-zip-empty-pickle", b"", "error", "damaged")
    archive(corpus, "P01-zip-only-proto", PROTO2, "error", "damaged")
    noise = bytes((i * 197 + (i >> 3) * 61) & 255 for i in range(5000))
    corpus.file("P02-noise", "model.pt", noise, "error", REFUSED)
    corpus.file("P02-png", "model.pt", b"\x89PNG\r\n\x1a\n" + noise, "error", REFUSED, text="PNG")
    corpus.file("P02-lfs", "model.pt", LFS_POINTER, "error", REFUSED, text="git-lfs")
    corpus.file("P02-html", "model.pt", HTML_PAGE, "error", REFUSED, text="HTML")
    archive(corpus, "P02-zip-noise", noise, "error", "damaged")
    corpus.file("P02-gzip", "model.pt", b"\x1f\x8b\x08\0" + noise, "error", REFUSED)
    corpus.file("P02-zeros", "model.pt", bytes(100_000), "error", REFUSED)


LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d7a" * 16 + b"\nsize 4976698672\n"
HTML_PAGE = b"<!DOCTYPE html>\n<html><head><title>404</title></head><body>Not found</body></html>\n"


def machine(corpus):
    """Streams that break the rules of the stack, the memo, the frames."""
    for id, body in {
        "P04-tuple-without-mark": TUPLE,
        "P04-setitem-on-empty": SETITEM,
        "P04-appends-without-list": MARK + integer(1) + APPENDS,
        "P04-setitems-odd": DICT + MARK + text("a") + SETITEMS,
        "P04-setitem-on-int": integer(1) + text("a") + integer(2) + SETITEM,
        "P04-append-on-dict": DICT + integer(1) + APPEND,
        "P04-reduce-alone": REDUCE,
        "P04-reduce-of-int": integer(1) + EMPTY_TUPLE + REDUCE,
        "P04-reduce-arguments-no-tuple": name("collections", "OrderedDict") + integer(1) + REDUCE,
        "P04-build-alone": BUILD,
        "P04-persid-alone": PERSID,
        "P04-pop-alone": POP,
        "P04-dup-alone": DUP,
        "P04-tuple3-of-two": integer(1) + integer(2) + b"\x87",
        "P05-open-mark": DICT + MARK,
        "P19-get-before-put": b"h\x07",
        "P19-memoize-empty": MEMOIZE,
        "P19-put-empty": b"q\0",
        "P17-get-text-missing": b"g12\n",
        "P17-long-get-missing": b"j\xff\xff\xff\xff",
        "P17-get-no-number": b"gfoo\n",
        "P17-put-negative": integer(1) + b"p-1\n",
        "P04-unknown-opcode": b"\xff",
        "P04-nothing": b"",
    }.items():
        archive(corpus, id, PROTO2 + body + STOP, "error", REFUSED)
    archive(corpus, "P05-two-objects", PROTO2 + integer(1) + GOOD[2:], "error", "damaged")
    archive(corpus, "P06-after-stop", GOOD + b"junk", "error", "damaged")
    corpus.file("P06-legacy-after-end", "model.pth", legacy_file() + b"junk", "any", REFUSED)
    archive(corpus, "P17-memo-out-of-order", PROTO2 + DICT + b"q\x02" + MARK + text("w") + tensor() + b"q\0" + text("v") + b"h\0" + SETITEMS + STOP, "ok")
    archive(corpus, "P18-memo-huge-index", PROTO2 + DICT + b"r\xff\xff\xff\xff" + STOP, "any", REFUSED, rss_mib=64)
    archive(corpus, "P18-memo-1g", PROTO2 + DICT + b"r\xff\xff\xff\x3f" + STOP, "any", REFUSED, rss_mib=64)
    for label, length in {"2e63": 1 << 63, "2e40": 1 << 40, "all-ones": (1 << 64) - 1, "one-more": 40}.items():
        for kind, opcode in {"binunicode8": b"\x8d", "binbytes8": b"\x8e", "bytearray8": b"\x96"}.items():
            archive(corpus, f"P20-{kind}-{label}", PROTO4 + opcode + struct.pack("<Q", length) + b"abc" + STOP, "error", ("damaged", "limit"), rss_mib=64)
    archive(corpus, "P20-binunicode-4g", PROTO2 + b"X\xff\xff\xff\xffabc" + STOP, "error", ("damaged", "limit"), rss_mib=64)
    archive(corpus, "P20-binstring-negative", PROTO2 + b"T\xff\xff\xff\xffabc" + STOP, "error", ("damaged", "limit"), rss_mib=64)
    archive(corpus, "P20-long4-negative", PROTO2 + b"\x8b\xff\xff\xff\xff" + STOP, "error", ("damaged", "limit"), rss_mib=64)
    inner = DICT + STOP
    frames = {
        "beyond-stream": FRAME + struct.pack("<Q", len(inner) + 1) + inner,
        "2e62": FRAME + struct.pack("<Q", 1 << 62) + inner,
        "all-ones": FRAME + struct.pack("<Q", (1 << 64) - 1) + inner,
        "in-frame": FRAME + struct.pack("<Q", 9 + len(inner)) + FRAME + struct.pack("<Q", len(inner)) + inner,
        "straddling-int": FRAME + struct.pack("<Q", 1) + b"K\x01" + STOP,
        "straddling-text": FRAME + struct.pack("<Q", 4) + b"X\x03\0\0\0abc" + STOP,
    }
    for label, body in frames.items():
        archive(corpus, f"P21-frame-{label}", PROTO4 + body, "error", ("damaged", "limit", "unsupported"))
    # A byte string that begins in a frame of two bytes and hides a call; C and Python readers of pickles disagree about it.
    hidden = evil(corpus) + STOP
    straddle = FRAME + struct.pack("<Q", 2) + b"B\x07" + b"\x01\0\0" + hidden + bytes(max(0, 0x107 - len(hidden))) + POP + NONE + STOP
    archive(corpus, "P22-frame-hides-call", PROTO4 + straddle, "error", ("damaged", "unsupported"), UNSAFE)
    for opcode, label in ((b"\x82\x01", "ext1"), (b"\x83\x01\0", "ext2"), (b"\x84\x01\0\0\0", "ext4")):
        archive(corpus, f"P23-{label}", PROTO2 + opcode + EMPTY_TUPLE + REDUCE + STOP, "error", REFUSED, UNSAFE)
    archive(corpus, "P24-next-buffer", b"\x80\x05\x97" + STOP, "error", REFUSED)
    archive(corpus, "P24-readonly-buffer", b"\x80\x05\x97\x98" + STOP, "error", REFUSED)
    archive(corpus, "P25-proto-6", b"\x80\x06" + DICT + STOP, "error", REFUSED)
    archive(corpus, "P25-proto-255", b"\x80\xff" + DICT + STOP, "error", REFUSED)
    archive(corpus, "P25-proto-twice", PROTO2 + PROTO2 + DICT + STOP, "any", REFUSED)
    archive(corpus, "P25-proto-in-the-middle", PROTO2 + DICT + text("a") + PROTO4 + integer(1) + SETITEM + STOP, "any", REFUSED)
    archive(corpus, "P25-no-proto", GOOD[2:], "any", REFUSED)


def foreign(corpus):
    """Calls of things that are no data: never made, always shown."""
    p = payload(corpus)
    calls = {
        "P07-global-reduce": evil(corpus),
        "P07-os-system": evil(corpus, "os"),
        "P07-nt-system": evil(corpus, "nt"),
        "P07-subprocess": call(name("subprocess", "Popen"), tuple_of(text("touch"), text(corpus.marker))),
        "P07-eval": call(name("builtins", "eval"), text(f"open('{corpus.marker}','w')")),
        "P07-exec": call(name("__builtin__", "execfile"), text("/etc/passwd")),
        "P07-import": call(name("builtins", "__import__"), text("os")),
        "P08-stack-global": text("posix") + text("system") + STACK_GLOBAL + tuple_of(p) + REDUCE,
        "P08-stack-global-memo": text("posix") + b"q\x07" + POP + text("system") + b"q\x08" + POP + b"h\x07h\x08" + STACK_GLOBAL + tuple_of(p) + REDUCE,
        "P09-inst": MARK + p + b"iposix\nsystem\n",
        "P09-obj": MARK + name("posix", "system") + p + b"o",
        "P11-newobj": name("subprocess", "Popen") + tuple_of(p) + NEWOBJ,
        "P11-newobj-ex": name("subprocess", "Popen") + tuple_of(p) + DICT + NEWOBJ_EX,
        "P11-build-setstate": name("posix", "system") + EMPTY_TUPLE + NEWOBJ + p + BUILD,
        "P13-dotted": call(name("numpy.core.numeric", "builtins.eval"), p),
        "P13-dotted-stack-global": text("torch") + text("os.system") + STACK_GLOBAL + tuple_of(p) + REDUCE,
        "P13-getattr-chain": call(call(name("builtins", "getattr"), name("torch", "os"), text("system")), p),
    }
    for id, opcodes in calls.items():
        archive(corpus, id, state_dict(("w", tensor()), ("x", opcodes)), "error", (), UNSAFE, opens=True)
    shown = {"P07-global-reduce", "P08-stack-global", "P09-inst", "P09-obj"}
    for row in corpus.rows:
        if row["id"] in shown:
            row["text"] = "posix.system"
    for id, opcodes in {"P10-call-popped": evil(corpus) + POP, "P10-obj-popped": MARK + name("posix", "system") + p + b"o" + POP,
                        "P10-pop-mark": MARK + evil(corpus) + b"1", "P10-global-popped": name("posix", "system") + POP}.items():
        archive(corpus, id, PROTO2 + opcodes + GOOD[2:], "error", (), UNSAFE, text="posix.system", opens=True)
    archive(corpus, "P07-as-root", PROTO2 + evil(corpus) + STOP, "error", REFUSED, UNSAFE)
    archive(corpus, "P07-as-key", PROTO2 + DICT + evil(corpus) + integer(1) + SETITEM + STOP, "error", REFUSED, UNSAFE)
    archive(corpus, "P07-as-persid", PROTO2 + evil(corpus) + PERSID + STOP, "error", REFUSED, UNSAFE)
    archive(corpus, "P07-as-storage-key", state_dict(("w", tensor(storage(evil(corpus))))), "error", REFUSED, UNSAFE)
    archive(corpus, "P07-as-size", state_dict(("w", tensor(None, 0, (evil(corpus), 3)))), "error", REFUSED, UNSAFE)
    archive(corpus, "P07-as-rebuild-state", state_dict(("w", tensor() + evil(corpus) + BUILD)), "error", REFUSED, UNSAFE)
    corpus.file("P07-legacy", "model.pth", legacy_file(state_dict(("w", tensor(legacy_storage())), ("x", evil(corpus)))), "error", (), UNSAFE, text="posix.system")
    corpus.file("P07-legacy-in-system-info", "model.pth",
                PROTO2 + integer(LEGACY_MAGIC) + STOP + PROTO2 + integer(1001) + STOP + PROTO2 + evil(corpus) + STOP + legacy_file()[legacy_file().index(b"protocol_version") - 9:],
                "error", REFUSED, UNSAFE)
    corpus.file("P07-bare-pickle", "model.pt", PROTO2 + evil(corpus) + STOP, "error", REFUSED)
    corpus.file("P07-bare-pickle-proto0", "model.pt", b"cposix\nsystem\n(V" + b"touch " + corpus.marker.encode() + b"\ntR.", "error", REFUSED)

    archive(corpus, "P12-build-on-tensor", state_dict(("w", tensor() + dict_of((text("a"), integer(1))) + BUILD)), "any", REFUSED)
    archive(corpus, "P12-build-on-int", state_dict(("w", integer(1) + DICT + BUILD)), "any", REFUSED)
    archive(corpus, "P14-unknown-rebuild", state_dict(("w", tensor(function="_rebuild_xyz")), ("v", tensor())), "warn", (), UNSAFE, text="_rebuild_xyz")
    archive(corpus, "P15-name-nul", state_dict(("x", call(text("a\0b") + text("c") + STACK_GLOBAL))), "any", REFUSED)
    archive(corpus, "P15-name-escape", state_dict(("x", call(text("\x1b[31mred\x1b]0;t\x07") + text("c\x9b") + STACK_GLOBAL))), "any", REFUSED)
    archive(corpus, "P15-name-newline", state_dict(("x", call(text("a\nb") + text("c\r\nverdict: safe") + STACK_GLOBAL))), "any", REFUSED)
    archive(corpus, "P15-name-1mb", state_dict(("x", call(text("m" * 1_000_000) + text("c") + STACK_GLOBAL))), "any", REFUSED)
    archive(corpus, "P15-global-no-newline", PROTO2 + b"c" + b"m" * 1_000_000, "error", ("damaged", "limit"))
    archive(corpus, "P15-global-invalid-utf8", state_dict(("x", call(b"c\xff\xfe\nc\xc0\n"))), "any", REFUSED)
    archive(corpus, "P15-key-invalid-utf8", PROTO2 + dict_of((text(b"\xff\xfe"), tensor())) + STOP, "any", REFUSED)
    archive(corpus, "P15-key-escape", state_dict(("\x1b[2Jw\nverdict: safe\u202e", tensor())), "ok")
    made = call(name("operator", "itemgetter"), integer(0))
    archive(corpus, "P16-dynamic-global", state_dict(("x", made + text("system") + STACK_GLOBAL + tuple_of(p) + REDUCE)), "error", ("damaged", "unsupported"), UNSAFE)


def bombs(corpus):
    deep = 1_000_000
    shapes = {
        "tuples": EMPTY_TUPLE + TUPLE1 * deep,
        "lists": LIST * deep + APPEND * (deep - 1),
        "dicts": (DICT + text("a")) * (deep // 8) + integer(1) + SETITEM * (deep // 8),
        "marks": MARK * deep,
        "marked-tuples": MARK * deep + TUPLE * deep,
        "calls": name("collections", "OrderedDict") * 1 + EMPTY_TUPLE + b"R" + TUPLE1 * deep,
        "builds": DICT + (DICT + BUILD) * (deep // 4),
        "persids": NONE + PERSID * deep,
    }
    for label, body in shapes.items():
        archive(corpus, f"P26-deep-{label}", PROTO2 + body + STOP, "error", REFUSED)
    archive(corpus, "P26-deep-inside", state_dict(("w", tensor()), ("x", EMPTY_TUPLE + TUPLE1 * deep)), "any", REFUSED)
    corpus.file("P26-deep-legacy", "model.pth", legacy_file(PROTO2 + EMPTY_TUPLE + TUPLE1 * deep + STOP, (), ()), "error", REFUSED)
    laughs = LIST + b"q\0" + POP + b"".join(MARK + (b"h" + bytes([i])) * 10 + b"l" + b"q" + bytes([i + 1]) + POP for i in range(40)) + b"h\x28"
    archive(corpus, "P27-laughs-by-get", state_dict(("w", tensor()), ("x", laughs)), "any", REFUSED)
    doubling = LIST + (DUP + b"\x86") * 60
    archive(corpus, "P27-laughs-by-dup", state_dict(("w", tensor()), ("x", doubling)), "any", REFUSED)
    many = b"".join(MARK + (b"h" + bytes([i])) * 10 + b"l" + b"q" + bytes([i + 1]) + POP for i in range(12))
    archive(corpus, "P27-laughs-of-tensors", PROTO2 + tensor() + b"q\0" + POP + many + b"h\x0c" + STOP, "any", REFUSED)
    archive(corpus, "P28-list-in-itself", PROTO2 + DICT + MARK + text("w") + tensor() + text("x") + LIST + b"q\0h\0" + APPEND + SETITEMS + STOP, "any", REFUSED)
    archive(corpus, "P28-dict-in-itself", PROTO2 + DICT + b"q\0" + text("x") + b"h\0" + SETITEM + STOP, "any", REFUSED)
    archive(corpus, "P28-dict-keyed-by-itself", PROTO2 + DICT + b"q\0h\0" + integer(1) + SETITEM + STOP, "error", REFUSED)
    archive(corpus, "P28-tuple-cycle", PROTO2 + LIST + b"q\0" + b"h\0" + TUPLE1 + APPEND + STOP, "any", REFUSED)
    archive(corpus, "P29-ten-million-tuples", PROTO2 + LIST + MARK + EMPTY_TUPLE * 10_000_000 + APPENDS + STOP, "any", REFUSED, rss_mib=700)  # some 64 bytes for each byte of the file
    archive(corpus, "P29-million-tensors", PROTO2 + DICT + MARK + tensor() + b"q\0" + POP + b"".join(text(str(i)) + b"h\0" for i in range(200_000)) + SETITEMS + STOP, "any", REFUSED)
    archive(corpus, "P30-int-digits", state_dict(("x", b"I" + b"9" * 1_000_000 + b"\n")), "any", REFUSED)
    archive(corpus, "P30-long-digits", state_dict(("x", b"L" + b"9" * 1_000_000 + b"L\n")), "any", REFUSED)
    archive(corpus, "P30-long4", state_dict(("x", b"\x8b" + struct.pack("<I", 2_000_000) + b"\x7f" * 2_000_000)), "any", REFUSED)
    archive(corpus, "P30-int-not-a-number", state_dict(("x", b"Ififteen\n")), "error", REFUSED)
    archive(corpus, "P30-float-not-a-number", state_dict(("x", b"Fpi\n")), "error", REFUSED)


def tensors(corpus):
    """Rebuild calls and storages that do not fit."""
    def pid(*items):
        return state_dict(("w", tensor(tuple_of(*items) + PERSID)))

    kind = name("torch", "FloatStorage")
    bad = {
        "P31-persid-text": state_dict(("w", tensor(text("storage") + PERSID))),
        "P31-persid-ascii": state_dict(("w", tensor(b"Pstorage\n"))),
        "P31-persid-empty": pid(),
        "P31-persid-three": pid(text("storage"), kind, text("0")),
        "P31-persid-seven": pid(text("storage"), kind, text("0"), text("cpu"), integer(6), NONE, NONE),
        "P31-persid-other-word": pid(text("module"), kind, text("0"), text("cpu"), integer(6)),
        "P31-persid-key-float": pid(text("storage"), kind, b"G" + bytes(8), text("cpu"), integer(6)),
        "P31-persid-key-path": pid(text("storage"), kind, text("../version"), text("cpu"), integer(6)),
        "P31-persid-key-missing": pid(text("storage"), kind, text("77"), text("cpu"), integer(6)),
        "P31-numel-negative": pid(text("storage"), kind, text("0"), text("cpu"), integer(-6)),
        "P31-numel-2e63": pid(text("storage"), kind, text("0"), text("cpu"), integer(1 << 63)),
        "P31-numel-2e62": pid(text("storage"), kind, text("0"), text("cpu"), integer(1 << 62)),
        "P31-numel-float": pid(text("storage"), kind, text("0"), text("cpu"), b"G" + struct.pack(">d", 6)),
        "P31-numel-text": pid(text("storage"), kind, text("0"), text("cpu"), text("6")),
        "P34-offset-by-one": state_dict(("w", tensor(None, 1))),
        "P34-extent": state_dict(("w", tensor(None, 0, (3, 3)))),
        "P34-offset-2e62": state_dict(("w", tensor(None, 1 << 62))),
        "P34-offset-negative": state_dict(("w", tensor(None, -1))),
        "P35-stride-negative": state_dict(("w", tensor(None, 5, (2, 3), (-3, -1)))),
        "P35-rank-mismatch": state_dict(("w", tensor(None, 0, (2, 3), (1,)))),
        "P35-size-negative": state_dict(("w", tensor(None, 0, (-2, 3)))),
        "P36-size-overflow": state_dict(("w", tensor(None, 0, (1 << 32, 1 << 32)))),
        "P36-size-overflow-before-zero": state_dict(("w", tensor(None, 0, (1 << 62, 1 << 62, 1)))),
        "P36-stride-overflow": state_dict(("w", tensor(None, 0, (1 << 32, 2), (1 << 32, 1)))),
        "P36-size-2e64": state_dict(("w", tensor(None, 0, (1 << 64, 3)))),
        "P31-rebuild-no-arguments": state_dict(("w", name("torch._utils", "_rebuild_tensor_v2") + EMPTY_TUPLE + REDUCE)),
        "P31-rebuild-of-text": state_dict(("w", tensor(text("0")))),
        "P31-size-of-text": state_dict(("w", tensor(None, 0, (text("2"), 3)))),
    }
    for id, pickle in bad.items():
        archive(corpus, id, pickle, "error", REFUSED, ("meta.inconsistent", "file.truncated", "file.missing", "security.global", "coverage.bounds"))
    archive(corpus, "P32-storage-class-unknown", state_dict(("w", tensor(storage(kind="FooStorage")))), "any", REFUSED)
    archive(corpus, "P32-storage-class-of-os", state_dict(("w", tensor(tuple_of(text("storage"), name("os", "system"), text("0"), text("cpu"), integer(6)) + PERSID))), "error", REFUSED, UNSAFE)
    archive(corpus, "P33-same-key-other-dtype", state_dict(("w", tensor()), ("v", tensor(storage(kind="HalfStorage", numel=12)))), "any", REFUSED)
    archive(corpus, "P33-same-key-other-count", state_dict(("w", tensor()), ("v", tensor(storage(numel=60), 0, (60,), (1,)))), "error", REFUSED, ("meta.inconsistent", "file.truncated"))
    archive(corpus, "P37-expand-bomb", state_dict(("w", tensor(storage(numel=6), 0, (1 << 40,), (0,)))), "any", REFUSED)
    archive(corpus, "P37-rank-1000", state_dict(("w", tensor(storage(numel=6), 0, (1,) * 1000, (1,) * 1000))), "any", REFUSED)
    sparse = call(name("torch._utils", "_rebuild_sparse_tensor"), call(name("torch.serialization", "_get_layout"), text("torch.sparse_coo")),
                  tuple_of(tensor(), tensor(), size_of((4,))))
    archive(corpus, "P38-sparse-inconsistent", state_dict(("w", sparse)), "any", REFUSED)
    quantized = call(name("torch._utils", "_rebuild_qtensor"), storage(kind="QInt8Storage", numel=24), integer(0), numbers((24,)), numbers((1,)), text("scheme"), FALSE, DICT)
    archive(corpus, "P38-quantized-inconsistent", state_dict(("w", quantized)), "any", REFUSED)
    archive(corpus, "P39-duplicate-keys", PROTO2 + dict_of((text("w"), tensor()), (text("w"), tensor(None, 0, (6,), (1,)))) + STOP, "any", REFUSED, ("meta.duplicate",))
    archive(corpus, "P39-names-meet", state_dict(("a.b", tensor()), ("a", dict_of((text("b"), tensor())))), "any", REFUSED)
    archive(corpus, "P39-no-tensors", PROTO2 + DICT + STOP, "ok")
    archive(corpus, "P39-root-none", PROTO2 + NONE + STOP, "any", REFUSED)


def legacy(corpus):
    def one(id, data, expect="error", code=REFUSED, rule=("meta.inconsistent", "file.truncated"), **more):
        corpus.file(id, "model.pth", data, expect, code, rule, **more)

    one("P40-good", legacy_file(), "ok")
    one("P40-magic-wrong", legacy_file(magic=LEGACY_MAGIC + 1))
    one("P40-protocol-1002", legacy_file(protocol=1002))
    one("P40-storages-cut", legacy_file(stores=((6, FLOATS[:-1]),)))
    one("P40-storages-absent", legacy_file(stores=()))
    one("P40-count-smaller", legacy_file(stores=((5, FLOATS[:20]),)))
    one("P40-count-2e61", legacy_file(stores=((1 << 61, FLOATS),)))
    one("P40-count-2e62", legacy_file(stores=((1 << 62, FLOATS),)))
    one("P40-count-negative", legacy_file(stores=((-6, FLOATS),)))
    one("P40-key-unknown", legacy_file(keys=("1",)))
    one("P40-key-twice", legacy_file(keys=("0", "0"), stores=((6, FLOATS), (6, FLOATS))))
    one("P40-keys-missing", legacy_file(keys=(), stores=()))
    one("P40-keys-a-million", legacy_file(keys=[str(i) for i in range(1_000_000)], stores=((6, FLOATS),)))
    one("P40-only-magic", PROTO2 + integer(LEGACY_MAGIC) + STOP)
    tar = bytearray(1024)
    tar[0:8] = b"sys_info"
    tar[257:263] = b"ustar\0"
    corpus.file("P41-tar", "model.pt", bytes(tar), "error", "unsupported")
    script = zip_of([Record("archive/data.pkl", GOOD), Record("archive/code/__torch__.py", b"def forward(self): pass"), Record("archive/constants.pkl", PROTO2 + EMPTY_TUPLE + STOP),
                     Record("archive/data/0", FLOATS), Record("archive/version", b"3\n")])
    corpus.file("P42-torchscript", "model.pt", script, "any", REFUSED)


def write(corpus):
    for part in (not_pickles, machine, foreign, bombs, tensors, legacy):
        part(corpus)

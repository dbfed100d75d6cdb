"""Zip archives that say two things at once, or nothing that is true."""

import struct

from hostile_bytes import *
from pickles import REFUSED, UNSAFE, evil

BAD = ("damaged", "unsupported", "limit", "unsafe")
INCONSISTENT = ("meta.inconsistent", "file.truncated", "file.missing", "integrity.crc")


def with_store(**fields):
    records = torch_records()
    records[2] = Record("archive/data/0", FLOATS, **fields)
    return records


def write(corpus):
    def zip_row(id, data, expect="error", code=BAD, rule=INCONSISTENT, **more):
        corpus.file(id, "model.pt", data, expect, code, rule, **more)

    good = torch_file()
    end = good[-22:]
    zip_row("Z00-good", good, "ok")
    zip_row("Z01-no-end", good[:-22])
    zip_row("Z01-end-cut", good[:-1])
    zip_row("Z01-two-ends", good + end)
    zip_row("Z01-end-in-comment", zip_of(torch_records(), comment=end))
    zip_row("Z01-comment-longer-than-file", zip_of(torch_records(), comment_length=500))
    zip_row("Z01-only-local-headers", good[:200])
    for id, wrong in {
        "Z02-directory-offset-past-end": {"directory_offset": len(good) + 1},
        "Z02-directory-offset-4g": {"directory_offset": 0xFFFFFFFE},
        "Z02-directory-size-past-end": {"directory_size": len(good)},
        "Z02-directory-size-zero": {"directory_size": 0},
        "Z02-count-more": {"count": 5},
        "Z02-count-fewer": {"count": 3},
        "Z02-count-zero": {"count": 0},
        "Z02-count-65535-no-zip64": {"count": 65535},
        "Z02-offset-ffffffff-no-zip64": {"directory_offset": 0xFFFFFFFF},
        "Z03-locator-past-end": {"zip64": (None, None, None), "locator": 1 << 40},
        "Z03-locator-2e64": {"zip64": (None, None, None), "locator": (1 << 64) - 1},
        "Z03-locator-into-data": {"zip64": (None, None, None), "locator": 0},
        "Z03-zip64-count-2e64": {"zip64": ((1 << 64) - 1, None, None), "count": 65535},
        "Z03-zip64-count-2e40": {"zip64": (1 << 40, None, None), "count": 65535},
        "Z03-zip64-size-2e64": {"zip64": (None, (1 << 64) - 1, None), "directory_size": 0xFFFFFFFF},
        "Z03-zip64-offset-2e64": {"zip64": (None, None, (1 << 64) - 1), "directory_offset": 0xFFFFFFFF},
        "Z03-zip64-disagrees": {"zip64": (3, None, None)},
        "Z17-trailing": {"suffix": b"trailing bytes"},
        "Z17-prefix": {"prefix": b"#!/bin/sh\nexit 0\n"},
        "Z17-pdf-polyglot": {"prefix": b"%PDF-1.4\n1 0 obj\n"},
        "Z24-disk-number": {"disk": 1},
    }.items():
        zip_row(id, zip_of(torch_records(), **wrong))
    zip_row("Z17-gap-before-directory", zip_of(torch_records(), gap=b"never read"), "any")
    zip_row("Z03-zip64-good", zip_of(torch_records(), zip64=(None, None, None)), "ok")
    for label, extra in {"sizes-2e64": struct.pack("<HHQQ", 1, 16, (1 << 64) - 1, (1 << 64) - 1), "too-short": struct.pack("<HHI", 1, 4, 24),
                         "beyond": struct.pack("<HH", 1, 60000), "empty": b""}.items():
        fields = {"size": 0xFFFFFFFF, "compressed": 0xFFFFFFFF, "central_extra": extra, "local_size": 24, "local_compressed": 24}
        zip_row(f"Z03-entry-{label}", zip_of(with_store(**fields)))
    zip_row("Z03-both-fields-set", zip_of(with_store(central_extra=struct.pack("<HHQQ", 1, 16, 1 << 40, 1 << 40))), "any")

    evil_pickle = PROTO2 + evil(corpus) + STOP
    for label, first, second in (("benign-first", GOOD, evil_pickle), ("malicious-first", evil_pickle, GOOD)):
        records = torch_records(first)
        records.insert(1, Record("archive/data.pkl", second))
        zip_row(f"Z04-two-pickles-{label}", zip_of(records))
    zip_row("Z04-pickle-in-other-case", zip_of([*torch_records(), Record("archive/DATA.PKL", evil_pickle)]))
    zip_row("Z05-two-storages", zip_of([*torch_records(), Record("archive/data/0", bytes(24))]))

    zip_row("Z06-local-name", zip_of([Record("archive/data.pkl", GOOD, local_name=b"archive/datap.kl"), *torch_records()[1:]]))
    zip_row("Z06-local-name-longer", zip_of([Record("archive/data.pkl", GOOD, local_name=b"archive/data.pkl.zip"), *torch_records()[1:]]))
    zip_row("Z06-storage-local-name", zip_of(with_store(local_name=b"archive/data/1")))
    zip_row("Z06-local-name-4000", zip_of(with_store(local_name=b"n" * 4000)))
    zip_row("Z06-no-local-signature", zip_of(with_store(signature=0)))
    zip_row("Z07-local-size", zip_of(with_store(local_size=20)))
    zip_row("Z07-local-compressed", zip_of(with_store(local_compressed=4)))
    zip_row("Z07-local-crc", zip_of(with_store(local_crc=1)))
    zip_row("Z07-local-method", zip_of(with_store(local_method=8)))
    zip_row("Z07-local-flags", zip_of(with_store(local_flags=0x0801)))
    zip_row("Z08-descriptor-good", zip_of(with_store(flags=0x0808)), "ok")
    crc = zlib.crc32(FLOATS)
    zip_row("Z08-descriptor-no-signature", zip_of(with_store(flags=0x0808, descriptor=struct.pack("<III", crc, 24, 24))), "ok")
    zip_row("Z08-descriptor-64", zip_of(with_store(flags=0x0808, descriptor=struct.pack("<IIQQ", 0x08074B50, crc, 24, 24))), "ok")
    zip_row("Z08-descriptor-missing", zip_of(with_store(flags=0x0808, descriptor=b"")))
    zip_row("Z08-descriptor-wrong-crc", zip_of(with_store(flags=0x0808, descriptor=struct.pack("<IIII", 0x08074B50, 1, 24, 24))))
    zip_row("Z08-descriptor-wrong-size", zip_of(with_store(flags=0x0808, descriptor=struct.pack("<IIII", 0x08074B50, crc, 24, 1 << 30))))
    for label, bits in {"encrypted": 0x0801, "strong": 0x0841, "patch": 0x0820, "masked": 0x2800}.items():
        zip_row(f"Z10-{label}", zip_of(with_store(flags=bits)))
        zip_row(f"Z10-{label}-pickle", zip_of([Record("archive/data.pkl", GOOD, flags=bits), *torch_records()[1:]]))

    # Overlaps: one kernel that several entries share, an entry that quotes the next one's header, an entry over the directory.
    shared = torch_records(state_dict(*[(f"w{i}", tensor(storage(str(i)))) for i in range(50)]))
    position = good.index(b"PK\x03\x04", good.index(b"byteorder") + 1)
    plain = zip_of(torch_records())
    position = plain.index(b"archive/data/0") - 30
    shared = torch_records() + [Record("archive/data/0", b"", offset=position, size=24, compressed=24, crc=crc, local_name=b"")]
    zip_row("Z11-two-entries-one-record", zip_of(shared))
    many = torch_records()
    many += [Record(f"archive/data/{i}", b"", local_name=b"archive/data/0", offset=position, size=24, compressed=24, crc=crc, align=0) for i in range(1, 2000)]
    zip_row("Z11-shared-kernel", zip_of(many))
    quoting = torch_records()
    quoting[2] = Record("archive/data/0", FLOATS, size=300, compressed=300)
    zip_row("Z11-quotes-the-next", zip_of(quoting))
    zip_row("Z12-over-directory", zip_of([*torch_records()[:3], Record("archive/version", b"3\n", size=200, compressed=200)]))
    zip_row("Z12-size-past-end", zip_of(with_store(size=1 << 20, compressed=1 << 20)))
    zip_row("Z12-size-4g", zip_of(with_store(size=0xFFFFFFF0, compressed=0xFFFFFFF0)))
    zip_row("Z12-offset-past-end", zip_of(with_store(offset=1 << 24)))
    zip_row("Z12-offset-by-one", zip_of(with_store(offset=position + 1)))

    huge = 64 << 20
    zip_row("Z13-deflate-bomb-storage", zip_of([*torch_records(state_dict(("w", tensor(storage(numel=huge // 4), 0, (huge // 4,), (1,)))), {}), Record("archive/data/0", bytes(huge), method=8)]), "any")
    bomb = PROTO2 + (DICT + POP) * (huge // 2) + DICT + STOP
    zip_row("Z13-deflate-bomb-pickle", zip_of([Record("archive/data.pkl", bomb, method=8), *torch_records()[1:]]), "error", "limit")
    zip_row("Z13-deflate-says-4g", zip_of([Record("archive/data.pkl", GOOD, method=8, size=0xFFFFFFF0), *torch_records()[1:]]))
    zip_row("Z13-deflate-says-less", zip_of([Record("archive/data.pkl", GOOD, method=8, size=len(GOOD) - 1), *torch_records()[1:]]))
    zip_row("Z13-deflate-garbage", zip_of([Record("archive/data.pkl", b"\xff" * 100, method=8, compressed=None or 100, local_compressed=100, size=500), *torch_records()[1:]]))
    zip_row("Z13-method-99", zip_of(with_store(method=99)))
    zip_row("Z13-zip-in-storage", torch_file(state_dict(("w", tensor(storage(numel=len(good) // 4), 0, (len(good) // 4,), (1,)))), {"0": good[:len(good) // 4 * 4]}), "any")
    zip_row("Z14-stored-sizes-differ", zip_of(with_store(size=48)))
    zip_row("Z15-crc-pickle", zip_of([Record("archive/data.pkl", GOOD, crc=1), *torch_records()[1:]]))
    zip_row("Z15-crc-storage", zip_of(with_store(crc=1)), "any")
    zip_row("Z15-crc-storage-values", zip_of(with_store(crc=1)), "error", level="values")
    zip_row("Z16-crc-zero", zip_of([Record(r.name, r.data, crc=0) for r in torch_records()]), "ok")
    zip_row("Z16-crc-zero-skip-data", zip_of(with_store(crc=0)), "any")

    for label, bad_name in {"dotdot": b"archive/data/../0", "up": b"../archive/data/0", "absolute": b"/archive/data/0", "drive": b"C:/archive/data/0", "backslash": b"archive\\data\\0",
                            "nul": b"archive/data/0\0.txt", "latin1": b"archive/data/\xff", "empty": b"", "slash-only": b"/", "65k": b"archive/data/" + b"n" * 65000}.items():
        zip_row(f"Z18-name-{label}", zip_of([*torch_records(), Record(bad_name, b"x")]), "any" if label in ("65k", "drive") else "error")
    zip_row("Z19-two-tops", zip_of([*torch_records()[:3], Record("other/version", b"3\n")]))
    zip_row("Z19-no-top", zip_of(torch_records(top=".")[1:] + [Record("data.pkl", GOOD)]))
    zip_row("Z19-flat", zip_of([Record("data.pkl", GOOD), Record("data/0", FLOATS), Record("version", b"3\n")]))
    zip_row("Z19-no-pickle", zip_of(torch_records()[1:]))
    zip_row("Z19-no-storage", zip_of([r for r in torch_records() if b"data/0" not in r.name]))
    zip_row("Z19-no-entries", zip_of([]))
    zip_row("Z20-no-version", torch_file(version=None), "any")
    zip_row("Z20-no-byteorder", torch_file(byteorder=None), "ok")
    zip_row("Z20-big-endian", torch_file(byteorder=b"big"), "ok")
    zip_row("Z20-byteorder-middle", torch_file(byteorder=b"middle"))
    zip_row("Z20-byteorder-1mb", torch_file(byteorder=b"l" * 1_000_000))
    for version in (b"0", b"99", b"abc", b"", b"3" * 1_000_000):
        zip_row(f"Z20-version-{version[:3].decode() or 'empty'}{'-long' if len(version) > 3 else ''}", torch_file(version=version), "any")
    zip_row("Z21-storage-smaller", torch_file(stores={"0": FLOATS[:-1]}))
    zip_row("Z21-storage-empty", torch_file(stores={"0": b""}))
    zip_row("Z21-storage-larger", torch_file(stores={"0": FLOATS + bytes(4)}), "any")
    zip_row("Z22-300k-entries", zip_of([*torch_records(), *[Record(f"archive/x{i}", b"", align=0) for i in range(300_000)]], count=65535, zip64=(None, None, None)), "any")
    zip_row("Z23-misaligned", zip_of([Record(r.name, r.data, align=0) for r in torch_records()]), "ok")
    zip_row("Z25-symlink-attributes", zip_of(with_store(attributes=0o120777 << 16)), "any")
    zip_row("Z04-evil-beside", zip_of([*torch_records(), Record("archive/other.pkl", evil_pickle)]), "any")

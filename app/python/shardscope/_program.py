"""The command line that was installed with the package."""
from __future__ import annotations

import os
import sys

_packaged: list[str] = []  # its path, once it was looked for; empty text where there is none


def _installed() -> str:
    """The program of this package's wheel, as the installer's list of files names it."""
    import csv
    import glob

    site = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    # pip --target moves the directory of programs after it wrote the list.
    candidates = [os.path.join(site, "bin", "shardscope")]
    for record in glob.glob(os.path.join(glob.escape(site), "shardscope-*.dist-info", "RECORD")):
        with open(record, newline="", encoding="utf-8") as lines:
            candidates[:0] = [os.path.join(site, row[0]) for row in csv.reader(lines) if row and os.path.basename(row[0]) == "shardscope"]
    return next((os.path.normpath(path) for path in candidates if os.path.isfile(path) and os.access(path, os.X_OK)), "")


def program() -> str:
    """Path of the command line: the one that was installed with the package, else the one of PATH."""
    if not _packaged:
        _packaged.append(_installed())
    if _packaged[0]:
        return _packaged[0]
    import shutil

    return os.environ.get("SHARDSCOPE") or shutil.which("shardscope") or "shardscope"


def main() -> None:
    """``python -m shardscope``: becomes the command line."""
    path = program()
    try:
        os.execv(path, [path, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"shardscope: cannot start {path}: {error.strerror}")

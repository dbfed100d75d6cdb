"""The command line inside the package, and the script that starts it."""
from __future__ import annotations

import os
import sys


def program() -> str:
    """Path of the command line: the packaged one, else the one of PATH."""
    packaged = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "shardscope")
    if os.access(packaged, os.X_OK):
        return packaged
    import shutil

    return os.environ.get("SHARDSCOPE") or shutil.which("shardscope") or "shardscope"


def main() -> None:
    """The script ``shardscope``: becomes the command line. ``shardscope gui`` starts the window where it is installed."""
    words = sys.argv[1:]
    if words[:1] == ["gui"]:
        import shutil

        window = shutil.which("shardscope-gui")
        if window is None:
            sys.exit("shardscope: the window is not part of the Python package; install the .deb or the portable archive of "
                     "Shardscope, which have shardscope-gui")
        os.execv(window, [window, *words[1:]])
    packaged = program()
    try:
        os.execv(packaged, [packaged, *words])
    except OSError as error:
        sys.exit(f"shardscope: cannot start {packaged}: {error.strerror}")

"""``progress="tqdm"`` and ``progress="log"``: what shows how far work is, where it is not a function of the caller."""
from __future__ import annotations

import importlib
import logging
from typing import Any

from ._errors import NoPackage, WrongValue


class _Bar:
    """A bar of tqdm. It ends with the call that it was made for, which holds the only reference to it."""

    def __init__(self, tqdm: Any) -> None:
        self._bar = tqdm(unit="B", unit_scale=True, unit_divisor=1024)

    def __call__(self, phase: str, done: int, total: int, tensor: str) -> None:
        if (self._bar.desc, self._bar.total) != (f"{phase}: ", total):
            self._bar.reset(total)
            self._bar.set_description(phase, refresh=False)
        self._bar.update(done - self._bar.n)

    def __del__(self) -> None:
        self._bar.close()


class _Log:
    """A record of the logger ``shardscope`` when a phase begins, at each tenth of it, and at its end."""

    def __init__(self) -> None:
        self._said: tuple[str, int] = ("", -1)

    def __call__(self, phase: str, done: int, total: int, tensor: str) -> None:
        tenth = 10 * done // total if total else 10
        if (phase, tenth) != self._said:
            self._said = (phase, tenth)
            logging.getLogger("shardscope").info("%s: %d of %d bytes%s", phase, done, total, f", {tensor}" if tensor else "")


def shown(how: str) -> Any:
    """The function that is told. Raises Error for another word, and where tqdm is not installed."""
    if how == "log":
        return _Log()
    if how != "tqdm":
        raise WrongValue("usage", f"progress='{how}' is neither a function nor one of 'tqdm' and 'log'")
    try:
        tqdm = importlib.import_module("tqdm.auto").tqdm
    except ImportError:
        raise NoPackage("unsupported", "progress='tqdm' needs tqdm, which is not installed", hint="pip install tqdm") from None
    return _Bar(tqdm)

"""Options of the command line as keyword arguments."""
from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Literal, Union

    # A function of phase, bytes done, bytes in all and tensor; a bar of tqdm; or records of the logger "shardscope".
    Progress = Union[Callable[[str, int, int, str], object], Literal["tqdm", "log"]]


def words_of(options: Mapping[str, Any]) -> list[str]:
    """Options of the command line: ``weights_only=True`` is ``--weights-only``, a list repeats its option."""
    words = []
    for key, value in options.items():
        option = "--" + key.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(option)
            continue
        for item in [value] if isinstance(value, (str, int, float, os.PathLike)) else value:
            words.append(f"{option}={os.fspath(item) if isinstance(item, os.PathLike) else item}")
    return words

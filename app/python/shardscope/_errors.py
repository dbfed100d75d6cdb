"""The one exception of the package."""
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional


class Error(Exception):
    """What went wrong, where, and what to do about it: the fields of ``shardscope.error/1``.

    ``code`` is one of ``usage``, ``not-found``, ``damaged``, ``unsupported``, ... as ``shardscope --json`` names them
    (docs/cli.md); ``message`` a sentence; ``file``, ``offset`` (byte in that file), ``tensor`` and ``rule`` say where;
    ``hint`` what you can do. What is not known is ``None``. ``str()`` is all of it on one line.
    """

    def __init__(self, code: str, message: str, file: Optional[str] = None, offset: Optional[int] = None,
                 tensor: Optional[str] = None, rule: Optional[str] = None, hint: Optional[str] = None,
                 text: Optional[str] = None) -> None:
        super().__init__(code, message, file, offset, tensor, rule, hint, text)
        self.code, self.message = code, message
        self.file, self.offset = file, offset
        self.tensor, self.rule, self.hint = tensor, rule, hint
        self._text = text or (f"{message} ({hint})" if hint else message)

    def __str__(self) -> str:
        return self._text

"""The exception of the package. It is one, ``Error``; its subclasses are Python's own exceptions, too."""
from __future__ import annotations

import errno

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional


class Error(Exception):
    """What went wrong, where, and what to do about it: the fields of ``shardscope.error/1``.

    ``code`` is one of ``usage``, ``not-found``, ``damaged``, ``unsupported``, ... as ``shardscope --json`` names them
    (docs/cli.md); ``message`` a sentence; ``file``, ``offset`` (byte in that file), ``tensor`` and ``rule`` say where;
    ``hint`` what you can do. What is not known is ``None``. ``str()`` is all of it on one line.

    Where one fits, it is an exception of Python, too: a file that is not there is a ``FileNotFoundError`` (so with
    ``FileExistsError``, ``PermissionError`` and ``OSError``), a name of a tensor that is not there a ``KeyError``, an index out
    of range an ``IndexError``, a wrong argument a ``ValueError`` or ``TypeError``, a package that is not installed an
    ``ImportError``.
    """

    def __init__(self, code: str, message: str, file: Optional[str] = None, offset: Optional[int] = None,
                 tensor: Optional[str] = None, rule: Optional[str] = None, hint: Optional[str] = None,
                 text: Optional[str] = None) -> None:
        super().__init__(code, message, file, offset, tensor, rule, hint, text)
        self.code, self.message = code, message
        self.file, self.offset = file, offset
        self.tensor, self.rule, self.hint = tensor, rule, hint
        self._text = text or (f"{message} ({hint})" if hint else message)
        if isinstance(self, OSError):
            OSError.__setattr__(self, "errno", _NUMBERS.get(code, errno.EIO))
            OSError.__setattr__(self, "filename", file)

    def __str__(self) -> str:
        return self._text


Error.__module__ = "shardscope"  # as users name it
_NUMBERS = {"not-found": errno.ENOENT, "exists": errno.EEXIST, "permission": errno.EACCES, "no-space": errno.ENOSPC}


class WrongValue(Error, ValueError):
    pass


class WrongType(Error, TypeError):
    pass


class OutOfRange(Error, IndexError):
    pass


class NoTensor(Error, KeyError):
    pass


class NoFile(Error, FileNotFoundError):
    pass


class FileThere(Error, FileExistsError):
    pass


class NotPermitted(Error, PermissionError):
    pass


class SystemFailed(Error, OSError):
    pass


class NoPackage(Error, ImportError):
    pass


_TYPES: dict[str, type[Error]] = {"usage": WrongValue, "not-found": NoFile, "exists": FileThere, "permission": NotPermitted,
                                  "io": SystemFailed, "no-space": SystemFailed}


def made(code: str, *fields: object) -> Error:
    """The Error for a code, with the fields that Error takes after it."""
    return _TYPES.get(code, Error)(code, *fields)  # type: ignore[arg-type]


def no_package(name: str, extra: str, needed: str) -> Error:
    return NoPackage("unsupported", f"{needed} needs {name}, which is not installed", hint=f"pip install 'shardscope[{extra}]'")

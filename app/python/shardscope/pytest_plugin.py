"""A fixture for pytest, which finds it by itself where the wheel is installed."""
from __future__ import annotations

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable
    from typing import Any, Union

    from . import types
    from ._checkpoint import Checkpoint

_SEVERITIES = ("info", "warning", "error")


def _text(finding: Any) -> str:
    """A finding as the command line says it."""
    lines = [f"{finding.severity} {finding.rule}: {finding.message}"]
    if finding.cause:
        lines.append(f"    cause: {finding.cause}")
    for example in finding.examples[:3]:
        words = [example["tensor"], example["file"] and f"in {example['file']}", example.get("detail")]
        lines.append("    " + " ".join(word for word in words if word))
    return "\n".join(lines)


def check_whole(path: "Union[str, os.PathLike[str]]", level: "types.Level" = "files", fail_on: "types.Severity" = "error",
                accepted: "Iterable[str]" = (), **options: "Any") -> "Checkpoint":
    """The checkpoint, open. A test in which it has a finding of the severity ``fail_on`` or worse fails, with all of them.

    accepted: rules whose findings are in order. options: as of ``Checkpoint.validate``, such as ``expect=``.
    """
    import shardscope

    __tracebackhide__ = True
    if fail_on not in _SEVERITIES:
        raise ValueError(f"fail_on is one of {', '.join(_SEVERITIES)}, not {fail_on!r}")
    allowed = set(accepted)
    checkpoint = shardscope.open(path)
    validation = checkpoint.validate(level=level, **options)
    found = [f for f in validation.findings
             if _SEVERITIES.index(f.severity) >= _SEVERITIES.index(fail_on) and f.rule not in allowed]
    if found:
        pytest.fail(f"{checkpoint.path} is not whole:\n" + "\n".join(_text(f) for f in found), pytrace=False)
    return checkpoint


@pytest.fixture
def whole_checkpoint() -> "Callable[..., Checkpoint]":
    """``whole_checkpoint(path, level="files", fail_on="error", accepted=(), expect=...)`` opens a checkpoint and fails the test
    with what a validation finds."""
    return check_whole

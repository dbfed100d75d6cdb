"""What validations say."""
from __future__ import annotations

from ._documents import parsed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from . import types
    from ._checkpoint import Checkpoint


class Finding:
    """What a rule of validation found: ``rule``, ``severity`` (``info``, ``warning``, ``error``), ``message``, ``cause``,
    ``count`` and ``examples``; ``step``, the name of the step of a run that it is about, else None."""

    __slots__ = ("rule", "severity", "message", "cause", "count", "examples", "step")

    def __init__(self, fields: types.FindingDocument) -> None:
        self.rule: str = fields["rule"]
        self.severity: types.Severity = fields["severity"]
        self.message: str = fields["message"]
        self.cause: str = fields["cause"]
        self.count: int = fields["count"]
        self.examples: list[types.Example] = fields["examples"]
        self.step: Optional[str] = fields.get("step")

    def __repr__(self) -> str:
        return f"<{self.severity} {self.rule}: {self.message}>"


class Judged:
    """``verdict`` (``safe``, ``care`` or ``unsafe``), ``level`` and ``findings``; ``document`` is all of it. True where the
    verdict is not unsafe."""

    def __init__(self, text: str) -> None:
        document = parsed(text)
        self.document: Any = document
        self.verdict: types.Verdict = document["verdict"]
        self.level: types.Level = document["level"]
        self.findings = [Finding(fields) for fields in document["findings"]]

    def __bool__(self) -> bool:
        return self.verdict != "unsafe"

    def _repr_html_(self) -> str:
        import html

        rows = "".join(
            f"<tr><td>{html.escape(f.severity)}</td><td>{html.escape(f.rule)}</td><td>{html.escape(f.message)}</td></tr>"
            for f in self.findings)
        return f"<b>{html.escape(self.verdict)}</b><table>{rows}</table>"

    def __repr__(self) -> str:
        return f"<shardscope.{type(self).__name__} {self.verdict}, {len(self.findings)} findings>"


class Validation(Judged):
    """The outcome of ``validate``: ``verdict``, ``level``, ``findings``, ``checked``, ``not_checked``; ``document`` is all of
    it as shardscope.validate/1. True where the verdict is not unsafe."""

    document: types.Validate

    def __init__(self, checkpoint: "Checkpoint", text: str) -> None:
        super().__init__(text)
        self._checkpoint, self._text = checkpoint, text
        self.checked: list[str] = self.document["checked"]
        self.not_checked: list[str] = self.document["not_checked"]

    def to_html(self) -> str:
        """One page that needs nothing else; every text of the checkpoint is escaped."""
        return self._checkpoint._open.html(self._text)

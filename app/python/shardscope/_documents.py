"""The JSON documents of docs/cli.md."""
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def parsed(text: str) -> Any:
    import json

    return json.loads(text)

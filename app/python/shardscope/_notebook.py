"""How a checkpoint shows itself in a notebook: a summary and a map of which rank holds how much of which tensor."""
from __future__ import annotations

from html import escape
from typing import Any

_MOST_TENSORS, _MOST_RANKS = 48, 128
_SHADES = ("#f2f2f2", "#d6e4f2", "#a9c8e6", "#6fa3d3", "#3f7fbd", "#1f5a99")  # nothing ... all of it


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


def placement_svg(checkpoint: Any) -> str:
    """The largest tensors as rows and the ranks as columns: the darker, the more of the tensor the rank holds."""
    opened = checkpoint._open
    facts = [(opened.facts(t), t) for t in range(len(checkpoint))]
    largest = sorted(facts, key=lambda entry: -entry[0][4])[:_MOST_TENSORS]
    shown = sorted(largest, key=lambda entry: entry[1])
    cell, text = 12, 320
    ranks = min(max((len(opened.placement(t)) for _, t in shown), default=0), _MOST_RANKS)
    parts = []
    for row, (fact, t) in enumerate(shown):
        name = fact[0] if len(fact[0]) <= 48 else fact[0][:20] + "…" + fact[0][-27:]
        y = row * cell
        parts.append(f'<text x="{text - 6}" y="{y + 10}" text-anchor="end">{_plain(name)}</text>')
        for rank, level in enumerate(opened.placement(t)[:ranks]):
            parts.append(f'<rect x="{text + rank * cell}" y="{y}" width="{cell - 1}" height="{cell - 1}" '
                         f'fill="{_SHADES[int(level)]}"><title>{_plain(fact[0])}, rank {rank}</title></rect>')
    width, height = text + max(ranks, 1) * cell, max(len(shown), 1) * cell
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
            f'font-size="9" role="img" aria-label="Which rank holds how much of each tensor">{"".join(parts)}</svg>')


def _plain(text: str) -> str:
    """Escaped; control characters, which SVG must not have, and lone surrogates are replaced."""
    return escape("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text))


def checkpoint_html(checkpoint: Any) -> str:
    info = checkpoint.info()
    totals = info["totals"]
    axes = " × ".join(f'{axis["name"]}={axis["size"]}' for axis in (info["mesh"] or {"axes": []})["axes"])
    rows = [("format", info["format"] + (f', {info["variant"]}' if info["variant"] else "")),
            ("tensors", f'{totals["tensors"]:,} in {totals["chunks"]:,} chunks, {totals["objects"]:,} objects'),
            ("parameters", f'{totals["parameters"]:,}' +
             (f'; optimizer state has {totals["optimizer_elements"]:,} elements more' if totals["optimizer_elements"] else "")),
            ("data", f'{_bytes(totals["bytes"])} in {totals["files"]:,} files of {totals["ranks"]:,} ranks'),
            ("mesh", axes or "none"),
            ("dtypes", ", ".join(f'{name} {_bytes(share["bytes"])}' for name, share in info["dtypes"].items()))]
    table = "".join(f"<tr><th style='text-align:left'>{name}</th><td style='text-align:left'>{_plain(value)}</td></tr>"
                    for name, value in rows)
    more = len(checkpoint) - _MOST_TENSORS
    note = f"<p>The {_MOST_TENSORS} largest tensors; {more:,} more are not shown.</p>" if more > 0 else ""
    return f"<b>{_plain(info['path'])}</b><table>{table}</table>{placement_svg(checkpoint)}{note}"

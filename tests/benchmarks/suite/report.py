"""Records as a table, and beside those of another commit."""

from __future__ import annotations

__all__ = ["comparison", "table"]

from collections.abc import Mapping, Sequence
from typing import Any

from suite.records import Record


def table(records: Sequence[Record], machine: Mapping[str, Any]) -> str:
    """Markdown, one row a record; a ratio above 1 is in our favour."""
    lines = [
        ", ".join(f"{key} {value}" for key, value in machine.items()),
        "",
        "| what | ours | theirs | unit | times better (quartiles) | n |",
        "|---|---|---|---|---|---|",
    ]
    for record in records:
        low, high = record.spread
        lines.append(
            f"| {record.name} | {record.ours:.4g} | {record.theirs:.4g} | {record.unit}"
            f" | {record.ratio:.2f} ({low:.2f} to {high:.2f}) | {record.n} |"
        )
    return "\n".join(lines) + "\n"


def comparison(new: Sequence[Record], old: Sequence[Record]) -> str:
    """How the ratios of two commits differ; what left the old one's quartiles is marked.

    Ratios, not times: two runs met two loads of the machine, a ratio was measured within one.
    """
    before = {record.name: record for record in old}
    lines = ["| what | before | now | change |", "|---|---|---|---|"]
    for record in new:
        past = before.pop(record.name, None)
        if past is None:
            lines.append(f"| {record.name} | – | {record.ratio:.2f} | new |")
            continue
        apart = record.spread[0] > past.spread[1] or record.spread[1] < past.spread[0]
        change = f"{record.ratio / past.ratio - 1:+.0%}"
        lines.append(
            f"| {record.name} | {past.ratio:.2f} | {record.ratio:.2f}"
            f" | {f'**{change}**' if apart else change} |"
        )
    lines += [f"| {name} | {past.ratio:.2f} | – | gone |" for name, past in before.items()]
    return "\n".join(lines) + "\n"

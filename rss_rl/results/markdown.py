"""Tables in Markdown."""

from __future__ import annotations

__all__ = ["grid"]

from collections.abc import Sequence


def grid(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    r"""A table; a bar in a cell ends no cell.

    >>> print(grid(["model", "r"], [["A|B", "0.5"]]))
    | model | r |
    | --- | --- |
    | A\|B | 0.5 |
    """
    lines = ([cell.replace("|", r"\|") for cell in line] for line in (header, *body))
    head, *rest = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([head, f"| {' | '.join(['---'] * len(header))} |", *rest])

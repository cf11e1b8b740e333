"""Output of results: Markdown tables, lines of scores, and files."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from rss_rl.durable import disk_errors, replacing
from rss_rl.metrics.measures import find_measure, format_measure

NONE = "-"
"""Table cell without a value."""
FREE_SPACE = "Give --out on a disk that can be written and has free space"


def markdown_table(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    r"""A table in Markdown; bars in cells are escaped.

    >>> print(markdown_table(["model", "r"], [["A|B", "0.5"]]))
    | model | r |
    | --- | --- |
    | A\|B | 0.5 |
    """
    lines = ([cell.replace("|", r"\|") for cell in line] for line in (header, *body))
    head, *rest = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([head, f"| {' | '.join(['---'] * len(header))} |", *rest])


def describe_scores(scores: Mapping[str, float], separator: str = "  ") -> str:
    """Labels and values of scores, on one line."""
    parts = (f"{find_measure(name).label} {format_measure(name, v)}" for name, v in scores.items())
    return separator.join(parts)


def write_files(folder: Path, contents: Mapping[str, str | bytes], what: str) -> list[Path]:
    """Write files by name, each atomically; `what` is for messages.

    Raises:
        CheckpointError: a write fails.
    """
    with disk_errors(folder, f"the {what} cannot be written", FREE_SPACE):
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            with replacing(folder / name) as temporary:
                temporary.write_bytes(content.encode() if isinstance(content, str) else content)
    return [folder / name for name in contents]


def check_folder(folder: Path, what: str) -> None:
    """Make the results folder, to fail before hours of training if it is not writable.

    Raises:
        CheckpointError: it cannot be made or is not writable.
    """
    with disk_errors(folder, f"the {what} cannot be written", FREE_SPACE):
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

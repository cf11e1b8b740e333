"""Several runs of one configuration, over their seeds."""

from __future__ import annotations

__all__ = ["markdown", "summarise", "summary_table"]

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from rss_rl.api.scores import MODE_NAMES, columns, format_spread
from rss_rl.errors import CheckpointError
from rss_rl.metrics.measures import find_measure
from rss_rl.results.markdown import grid
from rss_rl.results.spread import Spread, spread

Row = tuple[str, str, dict[str, Spread]]


def summarise(reports: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Split, mode and the spread of each metric that every run reports.

    Raises:
        CheckpointError: runs that share no split and mode, or a seed twice.
    """
    seeds = [report["seed"] for report in reports]
    if len(set(seeds)) < len(seeds):
        raise CheckpointError(
            f"the runs' seeds are {', '.join(map(str, seeds))}",
            remedy="Name each seed's run once: a repeated one makes the spread too small",
        )
    rows: list[Row] = []
    for split, modes in reports[0]["splits"].items():
        for mode, scores in modes.items():
            same = [report["splits"].get(split, {}).get(mode) for report in reports]
            if None in same:
                continue
            shared = [name for name in scores if all(other.get(name) is not None for other in same)]
            rows.append((split, mode, {n: spread([other[n] for other in same]) for n in shared}))
    if not rows:
        raise CheckpointError("the runs share no split and selection", remedy="Name like runs")
    return rows


def _cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    known = columns(scores for _, _, scores in rows)
    header = ["split", "selection", *(find_measure(name).label for name in known)]
    body = [
        [
            split,
            MODE_NAMES.get(mode, mode),
            *(format_spread(name, scores.get(name)) for name in known),
        ]
        for split, mode, scores in rows
    ]
    return header, body


def summary_table(rows: Sequence[Row]) -> Table:
    """The rows for a terminal."""
    header, body = _cells(rows)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, name in enumerate(header):
        table.add_column(name, justify="left" if number < 2 else "right")
    for row in body:
        table.add_row(*row)
    return table


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    return grid(*_cells(rows))

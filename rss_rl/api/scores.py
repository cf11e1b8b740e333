"""Reports as tables."""

from __future__ import annotations

__all__ = [
    "MODE_NAMES",
    "columns",
    "format_spread",
    "print_report",
    "scores_table",
    "show_report",
]

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rss_rl.metrics.measures import find_measure, format_measure, in_order, task_measures
from rss_rl.results.spread import Spread

Scores = Mapping[str, Mapping[str, float | None]]

MODE_NAMES = {
    "all": "all tokens",
    "thresholded": "thresholded",
    "sampled": "sampled",
    "random": "random, same share",
}
_UNSHOWN = {"reward"}
"""In the report, and of no use beside the loss and what is kept."""


def columns(scores: Iterable[Mapping[str, Any]]) -> list[str]:
    """The columns of a table of scores: measures that any of them has."""
    found = {name for own in scores for name in own}
    # Without a classifier there is nothing else to tell selections by.
    hidden = _UNSHOWN if found & {"loss", *task_measures()} else set()
    return in_order(found - hidden)


def format_spread(name: str, found: Spread | None) -> str:
    """Mean and, of several, the standard deviation in brackets."""
    if found is None:
        return "-"
    mean = format_measure(name, found.mean)
    return mean if found.deviation is None else f"{mean} ({format_measure(name, found.deviation)})"


def scores_table(splits: Mapping[str, Scores]) -> Table:
    """Rows of split and kind of selection; columns of the measures that any row has."""
    rows = [
        (split, mode, scores) for split, modes in splits.items() for mode, scores in modes.items()
    ]
    names = columns(scores for _, _, scores in rows)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("split")
    table.add_column("selection")
    for name in names:
        table.add_column(escape(find_measure(name).label), justify="right")
    for number, (split, mode, scores) in enumerate(rows):
        last = number + 1 == len(rows) or rows[number + 1][0] != split
        cells = [format_measure(name, scores.get(name)) for name in names]
        table.add_row(split, MODE_NAMES.get(mode, mode), *cells, end_section=last)
    return table


def print_report(out: Console, run: Path, report: Mapping[str, Any]) -> None:
    """The final report of a run, and where to look next."""
    out.print(scores_table(report["splits"]))
    out.print(
        f"{report['parameters']:,} parameters without embeddings; {report['steps']:,} updates, "
        f"best on dev at {report['best_step']:,}; {report['wall_seconds']:,.0f} s, "
        f"{report['examples_per_second']:,.0f} examples/s; seed {report['seed']}",
        soft_wrap=True,
    )
    if any(
        "rationale_f1" in scores for modes in report["splits"].values() for scores in modes.values()
    ):
        out.print(
            "precision, recall, F1: of the kept tokens against those the label follows from; "
            "random F1: as many random tokens",
            soft_wrap=True,
            style="dim",
        )
    out.print(f"\nRun:     {escape(str(run))}", soft_wrap=True)
    out.print(f"Curves:  tensorboard --logdir {escape(str(run))}", soft_wrap=True)
    out.print(f'Try it:  rss-rl select {escape(str(run))} "..."', soft_wrap=True)


def show_report(out: Console, run: Path, report: Mapping[str, Any], *, as_json: bool) -> None:
    """The final report for people, or on standard output for programs."""
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    else:
        print_report(out, run, report)

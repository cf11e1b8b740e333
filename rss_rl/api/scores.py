"""Reports as tables."""

from __future__ import annotations

__all__ = ["MODE_NAMES", "print_report", "scores_table", "summary_cells"]

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from rss_rl.api.terminal import plain_table, say
from rss_rl.metrics.measures import find_measure, format_measure, in_order, task_measures
from rss_rl.results.summary import Spread

Scores = Mapping[str, Mapping[str, float | None]]

MODE_NAMES = {
    "all": "all tokens",
    "thresholded": "thresholded",
    "sampled": "sampled",
    "random": "random, same share",
}
_UNSHOWN = {"reward"}
"""In the report, and of no use beside the loss and what is kept."""


def _columns(scores: Iterable[Mapping[str, Any]]) -> list[str]:
    """The columns of a table of scores: measures that any of them has."""
    found = {name for own in scores for name in own}
    # Without a classifier there is nothing else to tell selections by.
    hidden = _UNSHOWN if found & {"loss", *task_measures()} else set()
    return in_order(found - hidden)


def _format_spread(name: str, found: Spread | None) -> str:
    """Mean and, of several, the standard deviation in brackets."""
    if found is None:
        return "-"
    mean = format_measure(name, found.mean)
    return mean if found.deviation is None else f"{mean} ({format_measure(name, found.deviation)})"


def summary_cells(
    first: str, rows: Sequence[tuple[str, str, Mapping[str, Spread]]]
) -> tuple[list[str], list[list[str]]]:
    """Header and body of a table of spreads, by what `first` names and by mode of selection."""
    names = _columns(scores for _, _, scores in rows)
    body = [
        [name, MODE_NAMES.get(mode, mode), *(_format_spread(n, scores.get(n)) for n in names)]
        for name, mode, scores in rows
    ]
    return [first, "selection", *(find_measure(n).label for n in names)], body


def scores_table(splits: Mapping[str, Scores]) -> Table:
    """Rows of split and kind of selection; columns of the measures that any row has."""
    names = _columns(scores for modes in splits.values() for scores in modes.values())
    header = ["split", "selection", *(find_measure(name).label for name in names)]
    table = plain_table(header, left=2)
    for split, modes in splits.items():
        for mode, scores in modes.items():
            cells = [format_measure(name, scores.get(name)) for name in names]
            table.add_row(split, MODE_NAMES.get(mode, mode), *cells)
        table.add_section()
    return table


def print_report(out: Console, run: Path, report: Mapping[str, Any]) -> None:
    """The final report of a run, and where to look next."""
    out.print(scores_table(report["splits"]))
    say(
        out,
        f"{report['parameters']:,} parameters without embeddings; {report['steps']:,} updates, "
        f"best on dev at {report['best_step']:,}; {report['wall_seconds']:,.0f} s, "
        f"{report['examples_per_second']:,.0f} examples/s; seed {report['seed']}",
    )
    every = [scores for modes in report["splits"].values() for scores in modes.values()]
    if any("rationale_f1" in scores for scores in every):
        say(
            out,
            "precision, recall, F1: of the kept tokens against those the label follows from; "
            "random F1: as many random tokens",
            "dim",
        )
    say(out, f"\nRun:     {run}")
    say(out, f"Curves:  tensorboard --logdir {run}")
    say(out, f'Try it:  rss-rl select {run} "..."')

"""Reports as tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from rss_rl.api.terminal import plain_table, say
from rss_rl.metrics.measures import find_measure, format_measure
from rss_rl.results.score_cells import MODE_NAMES, score_columns

Scores = Mapping[str, Mapping[str, float | None]]


def scores_table(splits: Mapping[str, Scores]) -> Table:
    """A row for each split and selection mode; a column for each measure that occurs."""
    names = score_columns(scores for modes in splits.values() for scores in modes.values())
    header = ["split", "selection", *(find_measure(name).label for name in names)]
    table = plain_table(header, left=2)
    for split, modes in splits.items():
        for mode, scores in modes.items():
            cells = [format_measure(name, scores.get(name)) for name in names]
            table.add_row(split, MODE_NAMES.get(mode, mode), *cells)
        table.add_section()
    return table


def print_report(out: Console, run: Path, report: Mapping[str, Any]) -> None:
    """Print the final report of a run, and commands to continue with."""
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
            "precision, recall, F1: the kept tokens compared with those that decide the label; "
            "random F1: the same for as many random tokens",
            "dim",
        )
    say(out, f"\nRun:     {run}")
    say(out, f"Curves:  tensorboard --logdir {run}")
    say(out, f'Try it:  rss-rl select {run} "..."')

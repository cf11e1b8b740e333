"""Reports as tables."""

from __future__ import annotations

__all__ = ["COLUMNS", "MODE_NAMES", "format_metric", "print_report", "scores_table", "show_report"]

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

Scores = Mapping[str, Mapping[str, float | None]]

MODE_NAMES = {
    "all": "all tokens",
    "thresholded": "thresholded",
    "sampled": "sampled",
    "random": "random, same share",
}
COLUMNS = {
    "accuracy": "accuracy",
    "majority_accuracy": "majority",
    "macro_f1": "macro F1",
    "roc_auc": "ROC AUC",
    "map": "MAP",
    "mrr": "MRR",
    "map_all": "MAP, all",
    "mrr_all": "MRR, all",
    "pearson": "Pearson r",
    "spearman": "Spearman ρ",
    "mse": "MSE",
    "loss": "loss",
    "kept": "kept",
    "heads_kept": "heads",
    "dependents_kept": "dependents",
    "rationale_precision": "precision",
    "rationale_recall": "recall",
    "rationale_f1": "F1",
    "rationale_f1_random": "random F1",
}
_UNSHOWN = {"reward"}
"""In the report, and of no use beside the loss and what is kept."""
_SHARES = {"accuracy", "majority_accuracy", "kept", "heads_kept", "dependents_kept"}


def format_metric(name: str, value: float | None) -> str:
    """A metric as it is shown: shares in percent, others with three or four places."""
    if value is None:
        return "-"
    if name in _SHARES:
        return f"{value:.1%}"
    return f"{value:.3f}" if name.startswith(("rationale", "loss")) else f"{value:.4f}"


def scores_table(splits: Mapping[str, Scores]) -> Table:
    """Rows of split and kind of selection; columns of the metrics that any row has.

    Those that have a heading here come first, others follow by name.
    """
    rows = [
        (split, mode, scores) for split, modes in splits.items() for mode, scores in modes.items()
    ]
    found = {name for _, _, scores in rows for name in scores} - _UNSHOWN
    # Without a classifier there is nothing else to tell selections by.
    found |= _UNSHOWN if found and "loss" not in found else set()
    columns = [name for name in COLUMNS if name in found] + sorted(found - set(COLUMNS))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("split")
    table.add_column("selection")
    for name in columns:
        table.add_column(escape(COLUMNS.get(name, name)), justify="right")
    for number, (split, mode, scores) in enumerate(rows):
        last = number + 1 == len(rows) or rows[number + 1][0] != split
        cells = [format_metric(name, scores.get(name)) for name in columns]
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

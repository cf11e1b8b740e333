"""Table cells for scores, and for measures of the agreement with people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from rss_rl.metrics.measures import find_measure, format_measure, in_order, task_measures
from rss_rl.results.summary import Spread, spread_text

Rows = Sequence[tuple[str, str, Mapping[str, Any]]]
"""Run or split, selection, and its measures."""
Cells = tuple[list[str], list[list[str]]]
"""Header and body of a table."""
MODE_NAMES = {
    "all": "all tokens",
    "thresholded": "thresholded",
    "sampled": "sampled",
    "random": "random, same share",
}
_UNSHOWN = {"reward"}
"""Measures left out of tables: redundant next to the loss and the share kept."""

AGREEMENT_LABELS = {
    "accuracy": "accuracy",
    "accuracy_all": "reading all",
    "kept": "kept",
    "token_precision": "precision",
    "token_recall": "recall",
    "token_f1": "token F1",
    "iou_f1": "IOU F1",
    "auprc": "AUPRC",
    "budget_token_f1": "token F1 at budgets",
    "count_token_f1": "token F1 at people's count",
    "budget_iou_f1": "IOU F1 at budgets",
    "count_iou_f1": "IOU F1 at people's count",
    "comprehensiveness": "compr.",
    "sufficiency": "suff.",
    "aopc_comprehensiveness": "AOPC compr.",
    "aopc_sufficiency": "AOPC suff.",
    "budget_comprehensiveness": "compr. at budgets",
    "budget_sufficiency": "suff. at budgets",
    "similarity": "similarity",
    "people_similarity": "people's",
    "annotator_f1": "annotator F1",
    "people_f1": "people's F1",
}
_AGREEMENT_SHARES = {"accuracy", "accuracy_all", "kept"}


def score_columns(scores: Iterable[Mapping[str, Any]]) -> list[str]:
    """The columns of a table of scores: all measures that occur."""
    found = {name for own in scores for name in own}
    # Without a classifier, the reward is the only measure of a selection.
    hidden = _UNSHOWN if found & {"loss", *task_measures()} else set()
    return in_order(found - hidden)


def summary_cells(
    first: str, rows: Sequence[tuple[str, str, Mapping[str, Spread]]]
) -> tuple[list[str], list[list[str]]]:
    """Header and body of a table of spreads; `first` is the first column's heading."""
    names = score_columns(scores for _, _, scores in rows)
    body = []
    for name, mode, scores in rows:
        cells = (spread_text(scores.get(n), partial(format_measure, n)) for n in names)
        body.append([name, MODE_NAMES.get(mode, mode), *cells])
    return [first, "selection", *(find_measure(n).label for n in names)], body


def score_cells(first: str, rows: Rows) -> Cells:
    """Header and body of a table of scores; `first` is the first column's heading."""
    names = score_columns(scores for _, _, scores in rows)
    body = [
        [name, MODE_NAMES.get(mode, mode), *(format_measure(n, scores.get(n)) for n in names)]
        for name, mode, scores in rows
    ]
    return [first, "selection", *(find_measure(n).label for n in names)], body


def agreement_cells(first: str, rows: Rows) -> Cells:
    """The same for measures of the agreement with people."""
    names = [name for name in AGREEMENT_LABELS if any(name in scores for _, _, scores in rows)]
    body = [
        [name, selection, *(format_agreement(n, scores.get(n)) for n in names)]
        for name, selection, scores in rows
    ]
    return [first, "selection", *(AGREEMENT_LABELS[name] for name in names)], body


def format_agreement(name: str, value: float | None) -> str:
    """A value as shown in tables; `-` for None."""
    if value is None:
        return "-"
    return f"{value:.1%}" if name in _AGREEMENT_SHARES else f"{value:.3f}"

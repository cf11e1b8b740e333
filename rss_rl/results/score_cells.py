"""Table cells for scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rss_rl.metrics.measures import find_measure, format_measure, in_order, task_measures
from rss_rl.results.summary import Spread

MODE_NAMES = {
    "all": "all tokens",
    "thresholded": "thresholded",
    "sampled": "sampled",
    "random": "random, same share",
}
_UNSHOWN = {"reward"}
"""Measures left out of tables: redundant next to the loss and the share kept."""


def score_columns(scores: Iterable[Mapping[str, Any]]) -> list[str]:
    """The columns of a table of scores: all measures that occur."""
    found = {name for own in scores for name in own}
    # Without a classifier, the reward is the only measure of a selection.
    hidden = _UNSHOWN if found & {"loss", *task_measures()} else set()
    return in_order(found - hidden)


def _format_spread(name: str, found: Spread | None) -> str:
    """Mean and, over several runs, standard deviation in brackets."""
    if found is None:
        return "-"
    mean = format_measure(name, found.mean)
    return mean if found.deviation is None else f"{mean} ({format_measure(name, found.deviation)})"


def summary_cells(
    first: str, rows: Sequence[tuple[str, str, Mapping[str, Spread]]]
) -> tuple[list[str], list[list[str]]]:
    """Header and body of a table of spreads; `first` is the first column's heading."""
    names = score_columns(scores for _, _, scores in rows)
    body = [
        [name, MODE_NAMES.get(mode, mode), *(_format_spread(n, scores.get(n)) for n in names)]
        for name, mode, scores in rows
    ]
    return [first, "selection", *(find_measure(n).label for n in names)], body

"""Scores as the cells of a table."""

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
"""In the report, and of no use beside the loss and what is kept."""


def score_columns(scores: Iterable[Mapping[str, Any]]) -> list[str]:
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
    names = score_columns(scores for _, _, scores in rows)
    body = [
        [name, MODE_NAMES.get(mode, mode), *(_format_spread(n, scores.get(n)) for n in names)]
        for name, mode, scores in rows
    ]
    return [first, "selection", *(find_measure(n).label for n in names)], body

"""Mean and standard deviation over runs: seeds of a configuration, folds of cross-validation."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rss_rl.errors import CheckpointError


class Spread(NamedTuple):
    """Mean and sample standard deviation over runs; None as the deviation of a single run."""

    mean: float
    deviation: float | None


Summary = list[tuple[str, str, dict[str, Spread]]]
"""Split, mode of selection, and the spread of each metric."""


def is_number(value: object) -> bool:
    """Whether a score of a report is a finite number."""
    return isinstance(value, int | float) and math.isfinite(value)


def spread(values: Sequence[float]) -> Spread:
    """Mean and deviation of at least one value.

    >>> spread([1.0, 3.0])
    Spread(mean=2.0, deviation=1.4142135623730951)
    >>> spread([1.0])
    Spread(mean=1.0, deviation=None)
    """
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return Spread(statistics.fmean(values), deviation)


def spread_text(found: Spread | None, form: Callable[[float], str]) -> str:
    """Mean and, over several runs, standard deviation in brackets; `-` for None."""
    if found is None:
        return "-"
    mean = form(found.mean)
    return mean if found.deviation is None else f"{mean} ({form(found.deviation)})"


def summarise(reports: Sequence[Mapping[str, Any]]) -> Summary:
    """The spread of each metric that all reports have.

    Raises:
        CheckpointError: the runs share no split and mode, or have a seed twice.
    """
    seeds = [report["seed"] for report in reports]
    if len(set(seeds)) < len(seeds):
        raise CheckpointError(
            f"the runs' seeds are {', '.join(map(str, seeds))}",
            remedy="Name each seed's run once: a repeated one makes the spread too small",
        )
    rows: Summary = []
    for split, modes in reports[0]["splits"].items():
        for mode, scores in modes.items():
            same = [report["splits"].get(split, {}).get(mode) for report in reports]
            if None in same:
                continue
            shared = [name for name in scores if all(other.get(name) is not None for other in same)]
            rows.append((split, mode, {n: spread([other[n] for other in same]) for n in shared}))
    if not rows:
        raise CheckpointError("the runs share no split and selection", remedy="Name similar runs")
    return rows

"""Mean and standard deviation of a few numbers: seeds of a run, folds of a cross validation."""

from __future__ import annotations

__all__ = ["Spread", "spread"]

import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Spread(NamedTuple):
    """Mean and sample standard deviation over runs; the latter None for a single run."""

    mean: float
    deviation: float | None


def spread(values: Sequence[float]) -> Spread:
    """Of at least one value.

    >>> spread([1.0, 3.0])
    Spread(mean=2.0, deviation=1.4142135623730951)
    >>> spread([1.0])
    Spread(mean=1.0, deviation=None)
    """
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return Spread(statistics.fmean(values), deviation)

"""Mean and standard deviation over runs: seeds of a configuration, folds of cross-validation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple


class Spread(NamedTuple):
    """Mean and sample standard deviation over runs; None as the deviation of a single run."""

    mean: float
    deviation: float | None


def is_number(value: object) -> bool:
    """Whether a score of a report is a finite number."""
    return isinstance(value, int | float) and math.isfinite(value)


def spread_text(found: Spread | None, form: Callable[[float], str]) -> str:
    """Mean and, over several runs, standard deviation in brackets; `-` for None."""
    if found is None:
        return "-"
    mean = form(found.mean)
    return mean if found.deviation is None else f"{mean} ({form(found.deviation)})"

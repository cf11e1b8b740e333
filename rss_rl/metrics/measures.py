"""All measures that a report may hold: those of metrics, and those of the evaluation itself."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping

from rss_rl.components import Component, Measure, installed_components

_SHARE = "share of real tokens"
OWN = (
    Measure(
        "loss",
        "loss",
        "mean loss without dropout",
        unit="nats, or score²",
        largest=math.inf,
        places=3,
        lower_is_better=True,
        brief=True,
    ),
    Measure(
        "reward",
        "reward",
        "mean reward; with a target share only the score",
        unit="nats",
        largest=math.inf,
        brief=True,
    ),
    Measure(
        "kept", "kept", "words kept, as heads or dependents", unit=_SHARE, percent=True, brief=True
    ),
    Measure("heads_kept", "heads", "heads: words that attend to others", unit=_SHARE, percent=True),
    Measure(
        "dependents_kept",
        "dependents",
        "dependents: words that are attended to",
        unit=_SHARE,
        percent=True,
    ),
)
"""The evaluation's own measures."""


@functools.cache
def _metrics() -> tuple[Component, ...]:
    found = installed_components("metric").values()
    return tuple(component for component in found if isinstance(component, Component))


@functools.cache
def all_measures() -> Mapping[str, Measure]:
    """By name, in the order of columns: quality, loss and shares kept, agreement with people."""
    agreement = [m for c in _metrics() if c.can("rationales") for m in c.measures]
    others = [m for c in _metrics() if not c.can("rationales") for m in c.measures]
    return {measure.name: measure for measure in (*others, *OWN, *agreement)}


def find_measure(name: str) -> Measure:
    """The measure of this name; if no installed metric declares it, one with its name as label."""
    unknown = Measure(name, name, "", largest=math.inf, brief=True)
    return all_measures().get(name, unknown)


def task_measures() -> list[str]:
    """All measures of predictions."""
    return [measure.name for c in _metrics() if c.can("predictions") for measure in c.measures]


@functools.cache
def leading_measures() -> tuple[str, ...]:
    """The measures that runs are compared by: the first one of each metric of predictions."""
    return tuple(c.measures[0].name for c in _metrics() if c.can("predictions"))


def brief_measures(scores: Mapping[str, float | None]) -> dict[str, float]:
    """The few values to show when there is no room for all, in the order of columns."""
    shown = (n for n in in_order(scores) if find_measure(n).brief)
    return {name: value for name in shown if (value := scores[name]) is not None}


def in_order(names: Iterable[str]) -> list[str]:
    """Names in the order of columns; those that no metric declares come last."""
    found, known = set(names), all_measures()
    return [name for name in known if name in found] + sorted(found - set(known))


def format_measure(name: str, value: float | None) -> str:
    """A formatted value: shares in percent, others with their decimal places; `-` for None."""
    if value is None:
        return "-"
    measure = find_measure(name)
    return f"{value:.1%}" if measure.percent else f"{value:.{measure.places}f}"

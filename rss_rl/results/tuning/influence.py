"""Influence of each key of a search space on the dev metric.

Trials are compared at equal updates, so that those stopped early count as long as they ran. They
are ranked by the best evaluation of the phase so far. Finished trials that miss the target share
rank behind all others; before, a miss costs a penalty. Ranges are judged by Spearman's rank
correlation, choices by the mean rank of their trials and the Kruskal-Wallis test. Values of the
keys are drawn independently, so each key can be judged alone; few trials show only large effects.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from rss_rl.results.tuning.space import Base, Space
from rss_rl.results.tuning.trial import Point, TrialRecord, points
from rss_rl.types import Array

_FEWEST = 4
"""Fewest trials for a correlation."""


@dataclass(frozen=True)
class Influence:
    """Influence of a key after a number of updates.

    trials       number compared
    correlation  of value and merit, -1 to 1, positive if larger values were better; None for
                 choices, or with too few trials
    ranks        by choice: mean rank (1 is best) and number of trials; empty for ranges
    p            p-value under no influence; None with too few trials
    """

    key: str
    progress: int
    trials: int
    correlation: float | None
    ranks: Mapping[str, tuple[float, int]]
    p: float | None


def value_of(base: Base, record: TrialRecord, key: str) -> Any:
    """A trial's value of a key: drawn, or from the base configuration."""
    if key in record.settings:
        return record.settings[key]
    config = base.configure(record.settings)
    node: Any = config.model_dump(mode="json")
    for part in key.split("."):
        if isinstance(node, list):
            named = [n for n, item in enumerate(node) if item.get("name") == part]
            node = node[named[0] if named else int(part)]
        elif node is not None:
            node = node.get(part)
    if key == "learner.estimator" and node is None:
        node = config.estimator.name
    return node["name"] if isinstance(node, dict) and "name" in node else node


def point_at(record: TrialRecord, progress: int) -> Point | None:
    """The first evaluation after that many updates; None if the trial did not get there."""
    return next((point for point in points(record) if point.progress >= progress), None)


def influences(
    space: Space, base: Base, records: Sequence[TrialRecord], progress: int, *, over: bool
) -> list[Influence]:
    """Influence of each key among the trials, with the baseline, that made `progress` updates.

    Args:
        over: whether `progress` is a trial's full number of updates.
    """
    found = [(record, point_at(record, progress)) for record in records]
    reached = [(record, point) for record, point in found if point is not None]
    merits = np.array([point.merit if over else point.promise for _, point in reached], float)
    return [
        _influence(
            key,
            progress,
            merits,
            [value_of(base, record, key) for record, _ in reached],
            None if own.choice is None else [text_of(choice) for choice in own.choice],
        )
        for key, own in space.dimensions.items()
    ]


def _influence(
    key: str, progress: int, merits: Array, values: Sequence[Any], choices: list[str] | None
) -> Influence:
    """Influence of one key; `choices` are those of the space in order, None for a range."""
    count = len(values)
    if choices is None:
        if count < _FEWEST or len(set(values)) < 2 or len(set(merits)) < 2:
            return Influence(key, progress, count, None, {}, None)
        result = stats.spearmanr(np.array(values, float), merits)
        return Influence(key, progress, count, float(result.statistic), {}, float(result.pvalue))
    groups: dict[str, list[int]] = {choice: [] for choice in choices}
    for number, value in enumerate(values):
        groups.setdefault(text_of(value), []).append(number)
    groups = {name: own for name, own in groups.items() if own}
    ranks = stats.rankdata(-merits) if count else merits
    means = {name: (float(np.mean(ranks[own])), len(own)) for name, own in groups.items()}
    return Influence(key, progress, count, None, means, _kruskal(merits, list(groups.values())))


def _kruskal(merits: Array, groups: Sequence[Sequence[int]]) -> float | None:
    if len(merits) < _FEWEST or len(groups) < 2 or len(set(merits)) < 2:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        p = float(stats.kruskal(*(merits[list(own)] for own in groups)).pvalue)
    return p if math.isfinite(p) else None


def text_of(value: Any) -> str:
    """A value of a key as shown in tables and figures."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)

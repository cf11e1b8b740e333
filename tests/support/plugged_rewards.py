"""A reward model that needs no classifier and a metric, which tests plug in by their names here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import Field

from rss_rl.components import Component, Measure, NoOptions, Options
from rss_rl.metrics.protocol import MetricSetup, Scored
from rss_rl.reward_models.protocol import RewardSetup
from rss_rl.types import Array, Batch


class RuleOptions(Options):
    weight: float = Field(default=1.0, gt=0)


class Rule:
    """Pays for each kept token whose word has the letter a, and a little for any."""

    def __init__(self, setup: RewardSetup, options: RuleOptions) -> None:
        assert setup.words is not None
        assert setup.classifier is None
        self._good = np.array(["a" in word for word in setup.words])
        self._weight = options.weight

    def score(self, batch: Batch, selections: Sequence[Array]) -> dict[str, Array]:
        good = sum(
            (kept.any(1) & self._good[tokens]).sum(1)
            for kept, tokens in zip(selections, batch.tokens, strict=True)
        )
        kept = sum(kept.any(1).sum(1) for kept in selections)
        return {"good": self._weight * np.asarray(good), "kept_words": 0.01 * np.asarray(kept)}


RULE = Component(
    kind="reward_model",
    name="rule",
    help="Words with an a.",
    build=Rule,
    options=RuleOptions,
)


class Longest:
    names = ("longest", "shortest")

    def __init__(self, setup: MetricSetup, options: NoOptions) -> None:
        self._kept: list[Array] = []

    def add(self, scored: Scored) -> None:
        self._kept.append(sum(s.any(1).sum(1) for s in scored.selections))  # type: ignore[arg-type]

    def result(self) -> dict[str, float]:
        if not self._kept:
            return {}
        kept = np.concatenate(self._kept)
        return {"longest": float(kept.max()), "shortest": float(kept.min())}


LONGEST = Component(
    kind="metric",
    name="longest",
    help="Most and fewest words kept.",
    build=Longest,
    measures=(
        Measure("longest", "longest", "words kept of an example, at most", largest=math.inf),
        Measure("shortest", "shortest", "at least", largest=math.inf, lower_is_better=True),
    ),
)


def _scores_only(setup: MetricSetup, options: Any) -> Longest:
    return Longest(setup, options)


OF_SCORES = Component(
    kind="metric",
    name="of-scores",
    help="Only of scores.",
    build=_scores_only,
    capabilities=frozenset({"score"}),
)

AGAIN = Component(kind="metric", name="again", help="The same names.", build=Longest)

"""Predicted against gold scores: Pearson's r, Spearman's rho, mean squared error."""

from __future__ import annotations

import math

import numpy as np

from rss_rl.components import Component, Measure, NoOptions
from rss_rl.metrics.protocol import MetricSetup, Scored
from rss_rl.ops.scores import score_metrics
from rss_rl.types import Array


class _Correlation:
    names = ("pearson", "spearman", "mse")

    def __init__(self, setup: MetricSetup, options: NoOptions) -> None:
        self._predicted: list[Array] = []
        self._gold: list[Array] = []

    def add(self, scored: Scored) -> None:
        assert scored.predicted is not None
        self._predicted.append(scored.predicted)
        self._gold.append(scored.batch.labels)

    def result(self) -> dict[str, float]:
        if not self._gold:
            return {}
        return score_metrics(np.concatenate(self._predicted), np.concatenate(self._gold))


CORRELATION = Component(
    kind="metric",
    name="correlation",
    help="Pearson, Spearman and mean squared error of scores.",
    build=_Correlation,
    capabilities=frozenset({"score", "predictions", "standard", "main"}),
    measures=(
        Measure(
            "pearson",
            "Pearson r",
            "Pearson correlation with the gold score (score labels)",
            brief=True,
        ),
        Measure(
            "spearman", "Spearman ρ", "Spearman rank correlation with the gold score (score labels)"
        ),
        Measure(
            "mse",
            "MSE",
            "mean squared error of the score (score labels)",
            unit="score²",
            largest=math.inf,
            lower_is_better=True,
        ),
    ),
)

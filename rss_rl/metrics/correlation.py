"""Predicted against gold scores: Pearson's r, Spearman's rho, mean squared error."""

from __future__ import annotations

import math

from rss_rl.components import Component, Measure
from rss_rl.metrics.columns import ColumnMetric, predictions
from rss_rl.ops.scores import score_metrics

CORRELATION = Component(
    kind="metric",
    name="correlation",
    help="Pearson, Spearman and mean squared error of scores.",
    build=lambda setup, options: ColumnMetric(
        ("pearson", "spearman", "mse"), predictions, score_metrics
    ),
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

"""Share of the examples that are predicted right."""

from __future__ import annotations

__all__ = ["ACCURACY"]

import numpy as np

from rss_rl.components import Component, NoOptions
from rss_rl.metrics.protocol import MetricSetup, Scored
from rss_rl.types import Array


class _Accuracy:
    names = ("accuracy",)
    lower_is_better: frozenset[str] = frozenset()

    def __init__(self, setup: MetricSetup, options: NoOptions) -> None:
        self._right: list[Array] = []

    def add(self, scored: Scored) -> None:
        assert scored.predicted is not None
        self._right.append(scored.batch.labels == scored.predicted)

    def result(self) -> dict[str, float]:
        return {"accuracy": float(np.concatenate(self._right).mean())} if self._right else {}


ACCURACY = Component(
    kind="metric",
    name="accuracy",
    help="Share of the examples predicted right.",
    build=_Accuracy,
    capabilities=frozenset({"classes", "sentence", "candidate", "predictions", "standard", "main"}),
)

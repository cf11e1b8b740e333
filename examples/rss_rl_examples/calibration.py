"""Expected calibration error: how far confidence is from accuracy."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from rss_rl.components import Component, Measure, Options
from rss_rl.metrics.protocol import MetricSetup, Scored


class CalibrationOptions(Options):
    """How fine confidence is looked at."""

    bins: int = Field(default=10, ge=1, description="Equal parts of [0, 1].")


class Calibration:
    """sum over bins of |accuracy - mean confidence| x share of the examples in the bin."""

    names = ("calibration_error",)

    def __init__(self, setup: MetricSetup, options: CalibrationOptions) -> None:
        # By bin: examples, those predicted right, summed confidence.
        self._sums = np.zeros((options.bins, 3))

    def add(self, scored: Scored) -> None:
        """Count the examples of a batch by their confidence."""
        assert scored.probabilities is not None
        assert scored.predicted is not None
        confidence = scored.probabilities.max(1)
        right = scored.predicted == scored.batch.labels
        bins = np.minimum((confidence * len(self._sums)).astype(int), len(self._sums) - 1)
        np.add.at(self._sums, bins, np.stack([np.ones(len(right)), right, confidence], 1))

    def result(self) -> dict[str, float]:
        """The error, where there was an example."""
        count, right, confidence = self._sums.T
        if not count.sum():
            return {}
        return {"calibration_error": float(np.abs(right - confidence).sum() / count.sum())}


CALIBRATION = Component(
    kind="metric", name="calibration", help="Expected calibration error.",
    build=Calibration, options=CalibrationOptions,
    capabilities=frozenset({"classes", "sentence", "candidate", "predictions"}),
    source="Guo et al., ICML 2017",
    measures=(
        Measure(
            "calibration_error", "calibration error", "how far confidence is from accuracy",
            lower_is_better=True,
        ),
    ),
)  # fmt: skip

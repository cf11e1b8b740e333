"""Score-function estimators: log-probs weighted by rewards minus a baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field
from torch import Tensor

from rss_rl.components import Options
from rss_rl.ops import advantages
from rss_rl.ops.importance import Correction

Baseline = Literal["none", "moving-average", "self-critical", "leave-one-out"]


class BaselineOptions(Options):
    """Options of the baseline."""

    baseline: Baseline = Field(
        default="leave-one-out",
        description="What is subtracted from rewards: a running mean of them, the reward of the"
        " thresholded selection, or the mean of the example's other selections.",
    )
    baseline_momentum: float = Field(
        default=0.95, ge=0, lt=1, description="Momentum of baseline=moving-average."
    )


def baseline_capabilities(options: BaselineOptions) -> frozenset[str]:
    """Capabilities of an estimator with a baseline."""
    several = {"several"} if options.baseline == "leave-one-out" else set()
    return frozenset({"log_probs", "lag"} | several)


@dataclass(frozen=True)
class ScoreFunction:
    """See `LogProbEstimator`."""

    baseline: Baseline
    momentum: float | None
    correction: Correction | None
    limit: float
    bitwise: bool

    @classmethod
    def of(
        cls, options: BaselineOptions, correction: Correction | None, limit: float, bitwise: bool
    ) -> ScoreFunction:
        """The estimator with the baseline of the options."""
        averages = options.baseline == "moving-average"
        momentum = options.baseline_momentum if averages else None
        return cls(options.baseline, momentum, correction, limit, bitwise)

    @property
    def thresholded(self) -> bool:
        """Whether the baseline is the reward of the thresholded selection."""
        return self.baseline == "self-critical"

    def advantages(self, rewards: Tensor, thresholded: Tensor | None) -> Tensor:
        """See `LogProbEstimator`.

        Raises:
            ValueError: the rewards of the thresholded selections are missing.
        """
        if self.baseline == "leave-one-out":
            return advantages.leave_one_out(rewards)
        if self.baseline == "self-critical":
            if thresholded is None:
                raise ValueError("the self-critical baseline needs the thresholded rewards")
            return advantages.self_critical(rewards, thresholded)
        return rewards

"""The interfaces of estimators of the policy's gradient, from log-probs or gates.

Every sampler and learner builds its own from the same options, so an estimator is stateless. It
declares which of the two it is as a capability (`log_probs` or `gates`).

Legend: K selections per example, B examples, S sentences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from rss_rl.ops.importance import Correction


@dataclass(frozen=True)
class EstimatorSetup:
    """What an estimator is built from.

    selections  K, drawn for each example
    """

    selections: int


@runtime_checkable
class LogProbEstimator(Protocol):
    """Weights log-probs by advantages: rewards minus a baseline.

    momentum     of a moving average of the rewards, which the learners share and subtract first;
                 None = no average
    thresholded  True = `advantages` also gets the rewards of the thresholded selections
    correction   for selections that an older policy drew, called with `limit`; None = they count as
                 drawn by the target policy
    bitwise      True = the correction is given behaviour log-probs of bits, else of selections
    """

    momentum: float | None
    thresholded: bool
    correction: Correction | None
    limit: float
    bitwise: bool

    def advantages(self, rewards: Tensor, thresholded: Tensor | None) -> Tensor:
        """Advantages from rewards [K, B, S] and thresholded rewards [B, S]: [K, B, S]."""


@dataclass(frozen=True)
class GateEstimator:
    """The gradient of the classifier's loss through the policy's gates: the learner takes it."""


Estimator = LogProbEstimator | GateEstimator

"""The interfaces of estimators of the policy's gradient, from log-probs, bits or gates.

Every sampler and learner builds its own from the same options, so an estimator is stateless. It
declares which of the three it is as a capability (`log_probs`, `logits` or `gates`).

Legend: K selections per example, B examples, S sentences, R = 1 or 2 bits that are drawn for a
token, N tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from rss_rl.ops.estimators import BitRewards
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


@runtime_checkable
class BitEstimator(Protocol):
    """Decides what is drawn and scored, and turns rewards into a gradient for each bit.

    The policy must be a `FactorisedPolicy`, and the behaviour policy itself.

    needs_flips  True = the environment also scores each selection with each bit flipped; such an
                 estimator declares the capability `flips`
    """

    needs_flips: bool

    def spread(self, uniforms: Tensor) -> Tensor:
        """The uniform numbers [K, B, 2, N] to draw from, given independent ones."""

    def gradient(self, bits: BitRewards) -> Tensor:
        """Estimate of d E reward / d logits, [B, R, N]."""


@dataclass(frozen=True)
class GateEstimator:
    """The gradient of the classifier's loss through the policy's gates: the learner takes it."""


Estimator = LogProbEstimator | BitEstimator | GateEstimator

"""Estimators of the policy's gradient: from log-probs and rewards, or through gates.

Every sampler and learner builds its own from the same options, so an estimator is stateless. It
declares which of the two it is as a capability (`log_probs` or `gates`).

Legend: K selections per example, B examples, S sentences.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast, runtime_checkable

from pydantic import Field
from torch import Tensor

from rss_rl.components import Component, Options
from rss_rl.config import EstimatorConfig
from rss_rl.errors import ConfigError
from rss_rl.ops import advantages
from rss_rl.ops.importance import Correction, clipped_token, truncated_sum, truncated_token
from rss_rl.policies.protocol import missing_attributes


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

_KINDS = {"log_probs": LogProbEstimator, "gates": GateEstimator}


def build_estimator(config: EstimatorConfig, selections: int) -> Estimator:
    """The estimator named in the configuration, for K `selections` of each example.

    Raises:
        ConfigError: what the component builds is not what it declares.
    """
    declared = [kind for capability, kind in _KINDS.items() if config.can(capability)]
    where = f"estimator '{config.name}'"
    if len(declared) != 1:
        raise ConfigError(
            f"it declares {len(declared)} of the capabilities {', '.join(_KINDS)}",
            where=where,
            remedy="Declare what it works on: exactly one of them",
        )
    built: Any = config.build(EstimatorSetup(selections))
    (kind,) = declared
    if not isinstance(built, kind):
        lacking = ", ".join(f"`{name}`" for name in missing_attributes(built, kind))
        why = f": it has no {lacking}" if lacking else ""
        raise ConfigError(
            f"{type(built).__name__} is not a {kind.__name__}{why}",
            where=where,
            remedy="See rss_rl.policies.estimators",
        )
    return cast(Estimator, built)


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


_CORRECTIONS: Mapping[str, tuple[Correction | None, bool]] = {
    "none": (None, False),
    "truncated-sum": (truncated_sum, False),
    "truncated-token": (truncated_token, True),
}
"""Each with whether it weights bits."""


class ReinforceOptions(BaselineOptions):
    """Options of the baseline and of the off-policy correction."""

    correction: Literal["none", "truncated-sum", "truncated-token"] = Field(
        default="truncated-sum",
        description="Importance ratios of selections that an older policy drew: truncated, of the"
        " whole selection (V-trace) or of each bit. The default had the least error of the gradient"
        " at nearly every lag.",
    )
    ratio_max: float = Field(
        default=2.0, ge=1, description="Largest importance ratio of a truncated correction."
    )


def _reinforce(setup: EstimatorSetup, options: ReinforceOptions) -> ScoreFunction:
    correction, bitwise = _CORRECTIONS[options.correction]
    return ScoreFunction.of(options, correction, options.ratio_max, bitwise)


REINFORCE = Component(
    kind="estimator",
    name="reinforce",
    help="Log-probs times rewards minus a baseline.",
    build=_reinforce,
    options=ReinforceOptions,
    capabilities=baseline_capabilities,
    source="Williams 1992; Kool, van Hoof and Welling 2019 (leave-one-out)",
)


class PPOClipOptions(BaselineOptions):
    """Options of the baseline and the clipping."""

    ratio_clip: float = Field(
        default=0.2, gt=0, lt=1, description="epsilon: ratios stay in [1 - epsilon, 1 + epsilon]."
    )


def _ppo_clip(setup: EstimatorSetup, options: PPOClipOptions) -> ScoreFunction:
    return ScoreFunction.of(options, clipped_token, options.ratio_clip, bitwise=True)


PPO_CLIP = Component(
    kind="estimator",
    name="ppo-clip",
    help="Log-probs times rewards minus a baseline, with clipped ratios of each bit.",
    build=_ppo_clip,
    options=PPOClipOptions,
    capabilities=baseline_capabilities,
    source="Schulman et al., Proximal Policy Optimization Algorithms, 2017",
)

PATHWISE = Component(
    kind="estimator",
    name="pathwise",
    help="The gradient of the classifier's loss through the policy's gates, without samplers.",
    build=lambda setup, options: GateEstimator(),
    capabilities=frozenset({"gates"}),
    source="Kingma and Welling 2014; Bengio et al. 2013 (straight-through)",
)

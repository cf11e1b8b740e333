"""PPO's clipped importance ratios, of each bit."""

from __future__ import annotations

from pydantic import Field

from rss_rl.components import Component
from rss_rl.ops.importance import clipped_token
from rss_rl.policies.estimators.log_probs import (
    BaselineOptions,
    ScoreFunction,
    baseline_capabilities,
)
from rss_rl.policies.estimators.protocol import EstimatorSetup


class PPOClipOptions(BaselineOptions):
    """Options of the baseline and the clipping."""

    ratio_clip: float = Field(
        default=0.2, gt=0, lt=1, description="epsilon: ratios stay in [1 - epsilon, 1 + epsilon]."
    )


def _build(setup: EstimatorSetup, options: PPOClipOptions) -> ScoreFunction:
    return ScoreFunction.of(options, clipped_token, options.ratio_clip, bitwise=True)


PPO_CLIP = Component(
    kind="estimator",
    name="ppo-clip",
    help="Log-probs times rewards minus a baseline, with clipped ratios of each bit.",
    build=_build,
    options=PPOClipOptions,
    capabilities=baseline_capabilities,
    source="Schulman et al., Proximal Policy Optimization Algorithms, 2017",
)

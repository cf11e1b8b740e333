"""REINFORCE: log-probs times rewards minus a baseline, with off-policy correction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from rss_rl.components import Component
from rss_rl.ops.importance import Correction, truncated_sum, truncated_token
from rss_rl.policies.estimators.log_probs import (
    BaselineOptions,
    ScoreFunction,
    baseline_capabilities,
)
from rss_rl.policies.estimators.protocol import EstimatorSetup

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


def _build(setup: EstimatorSetup, options: ReinforceOptions) -> ScoreFunction:
    correction, bitwise = _CORRECTIONS[options.correction]
    return ScoreFunction.of(options, correction, options.ratio_max, bitwise)


REINFORCE = Component(
    kind="estimator",
    name="reinforce",
    help="Log-probs times rewards minus a baseline.",
    build=_build,
    options=ReinforceOptions,
    capabilities=baseline_capabilities,
    source="Williams 1992; Kool, van Hoof and Welling 2019 (leave-one-out)",
)

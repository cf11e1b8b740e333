"""DisARM: antithetic pairs, with the uniform numbers integrated out."""

from __future__ import annotations

from rss_rl.components import Component
from rss_rl.ops.estimators import antithetic, disarm
from rss_rl.policies.estimators.bits import ComposedBitEstimator

DISARM = Component(
    kind="estimator",
    name="disarm",
    help="Antithetic pairs, with the numbers drawn integrated out.",
    build=lambda setup, options: ComposedBitEstimator(disarm, antithetic, needs_flips=False),
    capabilities=frozenset({"logits", "pairs"}),
    source="Dong, Mnih and Tucker, NeurIPS 2020; Yin et al. 2020",
)

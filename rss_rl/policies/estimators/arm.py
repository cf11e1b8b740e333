"""ARM: antithetic pairs, weighted by the uniform numbers that they were drawn from."""

from __future__ import annotations

from rss_rl.components import Component
from rss_rl.ops.estimators import antithetic, arm
from rss_rl.policies.estimators.bits import ComposedBitEstimator

ARM = Component(
    kind="estimator",
    name="arm",
    help="Antithetic pairs, weighted by the numbers drawn.",
    build=lambda setup, options: ComposedBitEstimator(arm, antithetic, needs_flips=False),
    capabilities=frozenset({"logits", "pairs"}),
    source="Yin and Zhou, ARM: Augment-REINFORCE-Merge Gradient, ICLR 2019",
)

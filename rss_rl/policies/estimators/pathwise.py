"""Pathwise: the gradient of the classifier's loss through the policy's gates."""

from __future__ import annotations

from rss_rl.components import Component
from rss_rl.policies.estimators.protocol import GateEstimator

PATHWISE = Component(
    kind="estimator",
    name="pathwise",
    help="The gradient of the classifier's loss through the policy's gates, without samplers.",
    build=lambda setup, options: GateEstimator(),
    capabilities=frozenset({"gates"}),
    source="Kingma and Welling 2014; Bengio et al. 2013 (straight-through)",
)

"""Flip: each bit flipped, the exact expectation over one bit given the others."""

from __future__ import annotations

from rss_rl.components import Component
from rss_rl.ops.estimators import flip
from rss_rl.policies.estimators.bits import ComposedBitEstimator, unchanged

FLIP = Component(
    kind="estimator",
    name="flip",
    help="Each bit flipped: exact over one bit, given the others.",
    build=lambda setup, options: ComposedBitEstimator(flip, unchanged, needs_flips=True),
    capabilities=frozenset({"logits", "flips"}),
    source="Titsias and Lázaro-Gredilla, NeurIPS 2015",
)

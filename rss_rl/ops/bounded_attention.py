"""Feature-wise attention on a grid, where that is faster and within the user's error bound.

Legend: X heads and Y dependents of all sequences, D features.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rss_rl.ops.attention import KernelBackend
from rss_rl.ops.attention_pairs import PackedPairs
from rss_rl.ops.grid_scan import Plan
from rss_rl.ops.linear_attention import linear_attention, make_plan

_FEWEST = 96
"""With fewer heads or dependents the grid never pays, whatever the range and error."""
_PAIR_COST = {torch.float32: 1.2, torch.float64: 2.3}
"""Measured time of a pair on the grid over that of one in the eager exact kernel.

Forward and backward at D = 300: costs are equal at the measured crossover.
"""
PAIR_SPEED: dict[KernelBackend, float] = {"eager": 1.0, "compiled": 33.0}
"""Pairs that an exact backend computes in the time of one eager pair.

Measured on a CPU; may differ on CUDA.
"""


def attention_within(
    error: float | None,
    head_scores: Tensor,
    dependent_scores: Tensor,
    values: Tensor,
    pairs: PackedPairs,
    scale: float,
    speed: float = 1.0,
) -> Tensor | None:
    """`linear_attention` within this error; None where exact attention should be used instead.

    That is without an error, if no plan meets it, or if the exact kernel is faster. Half precision
    is computed in float32.

    Args:
        error: of the result, relative to the largest value of a feature; None = always exact.
        head_scores: v, [X, D]. dependent_scores: u, [Y, D]. values: h, [Y, D].
        pairs: which dependents a head may attend to. scale: c > 0.
        speed: pairs of the exact kernel in the time of one eager pair.

    Returns:
        [X, D] in the type of `values`, or None.
    """
    heads, dependents = pairs.heads, pairs.dependents
    sizes = heads.longest, dependents.longest
    if error is None or min(sizes) < _FEWEST:
        return None
    positions = heads.gathered(), dependents.gathered()
    with torch.autocast(values.device.type, enabled=False):
        v = heads.padded(_at_least_float32(head_scores))
        u, h = (dependents.padded(_at_least_float32(part)) for part in (dependent_scores, values))
        plan = make_plan(u, positions[1], scale, error)
        if plan is None or not is_worth_it(plan, *sizes, speed):
            return None
        found = linear_attention(v, u, h, *positions, pairs.order, scale, plan)
    return heads.unpadded(found).to(values.dtype)


def _at_least_float32(part: Tensor) -> Tensor:
    return part.to(torch.promote_types(part.dtype, torch.float32))


def is_worth_it(plan: Plan, heads: int, dependents: int, speed: float = 1.0) -> bool:
    """Whether the grid is faster than `heads` x `dependents` pairs, by measured costs.

    Each head is paired with a chunk and the nodes, each dependent with the nodes.

    Args:
        heads: J. dependents: I. speed: see `attention_within`.
    """
    weighed = heads * (plan.chunk + plan.nodes) + dependents * plan.nodes
    return speed * _PAIR_COST[plan.dtype] * weighed < heads * dependents

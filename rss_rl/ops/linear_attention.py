"""Feature-wise additive attention in linear time, within an error bound of the caller's.

Dependents far from a head are summed onto R grid scores (see `interpolation`), to which it attends
as if they were dependents; to those of its own chunk it attends one by one. So a head costs T + R
pairs and a dependent R products, however long the text: O(n (T + R) D) time. The prefix sums of the
chunks are (n / T) 2 R D numbers, and T >= R, so memory is O(M n D).

The sums alternate in sign. They cancel where weights are near exp(-c), which amplifies rounding by
up to max h / min h (`growth`): the range of the scores decides whether float64 is needed.

Legend: M sequences, J heads, I dependents, D features, T dependents of a chunk, R nodes; X heads
and Y dependents of all sequences.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rss_rl.ops.attention import KernelBackend
from rss_rl.ops.attention_pairs import Order, PackedPairs
from rss_rl.ops.chunk_rows import reaches, rows_of
from rss_rl.ops.grid_scan import Grid, Plan, Scan
from rss_rl.ops.interpolation import errors, fewest_nodes, growth, rounded_width
from rss_rl.ops.masking import Gathered

_SMALLEST_CHUNK = 32
_ROUNDING = 1.0
"""Rounding errors of a head's weights, in units of the last place of the largest one at a node.

The worst observed is 0.2 where weights hardly differ, and 0.04 where sums cancel.
"""
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


def make_plan(
    dependent_scores: Tensor, dependents: Gathered, scale: float, error: float
) -> Plan | None:
    """Nodes and precision for the range of the scores; None if no plan meets `error`.

    Args:
        dependent_scores: u, [M, I, D]. dependents: kept [M, I].
        scale: c. error: see `linear_attention`.

    Raises:
        ValueError: an error that is not between 0 and 1.
    """
    if not 0 < error < 1:
        raise ValueError(f"the error of attention must be between 0 and 1, not {error}")
    scores = dependent_scores.detach()
    # A relative error e of weights moves the mean by at most e / (1 - e) times the largest value.
    share = error / (1 + error) - torch.finfo(dependent_scores.dtype).eps
    if not scores.numel() or share <= 0:
        return None
    kept, some = dependents.kept[..., None], dependents.kept.any(1)[:, None]
    low = scores.masked_fill(~kept, math.inf).amin(1).where(some, 0.0).double()  # [M, D]
    high = scores.masked_fill(~kept, -math.inf).amax(1).where(some, 0.0).double()
    width = float((high - low).max())
    if not math.isfinite(width):
        return None
    width = rounded_width(scale, width)
    count = fewest_nodes(scale, width, 0.75 * share)
    if count is None:
        return None
    amplified = _ROUNDING * growth(scale, width) * errors(scale, width, count).lebesgue
    precisions = [torch.float32, torch.float64][dependent_scores.dtype == torch.float64 :]
    fit = [p for p in precisions if torch.finfo(p).eps * amplified <= 0.25 * share]
    if not fit:
        return None
    half = ((high - low) / 2).clamp_min(1e-2 * scale)
    return Plan(count, max(_SMALLEST_CHUNK, count), fit[0], (high + low) / 2, half)


def linear_attention(
    head_scores: Tensor,
    dependent_scores: Tensor,
    values: Tensor,
    heads: Gathered,
    dependents: Gathered,
    order: Order,
    scale: float,
    plan: Plan,
) -> Tensor:
    """`feature_wise_attention` within the error e that `plan` was made for.

    |result - exact| <= e max |h_i| of the feature, over the dependents of the sequence. Gradients
    are those of the approximation (the grid is held fixed); with P the exact attention and g the
    result's gradient they differ from the exact ones by at most 4 e max |h_i| |g_j| for head j's
    score, 4 e max |h_i| sum_j P_ji |g_j| for dependent i's and 4 e sum_j P_ji |g_j| for its value.

    Args:
        head_scores: v = W2 x_j + b, [M, J, D].
        dependent_scores: u = W1 x_i, [M, I, D].
        values: h, [M, I, D].
        heads: positions [M, J]. dependents: positions [M, I], ascending, the kept ones first.
        order: which dependents a head may attend to. scale: c > 0.
        plan: of `make_plan` for these dependents.

    Returns:
        [M, J, D]; 0 for a head without an allowed dependent.

    Raises:
        ValueError: shapes that do not fit.
    """
    if (
        dependent_scores.shape != values.shape
        or dependents.kept.shape != values.shape[:2]
        or heads.kept.shape != head_scores.shape[:2]
        or head_scores.shape[::2] != values.shape[::2]
    ):
        raise ValueError(
            f"heads {tuple(head_scores.shape)} at {tuple(heads.kept.shape)}, dependents"
            f" {tuple(dependent_scores.shape)} at {tuple(dependents.kept.shape)} and values"
            f" {tuple(values.shape)} do not fit"
        )
    reach = reaches(heads, dependents, order)
    return _Linear.apply(  # type: ignore[no-any-return, no-untyped-call]
        head_scores, dependent_scores, values, dependents.kept, reach, Grid(plan, scale)
    )


class _Linear(torch.autograd.Function):
    """Saves only inputs and results; backward recomputes the sums."""

    @staticmethod
    def forward(
        ctx: Any,
        head_scores: Tensor,
        dependent_scores: Tensor,
        values: Tensor,
        kept: Tensor,
        reach: list[tuple[bool, Tensor]],
        grid: Grid,
    ) -> Tensor:
        factors = grid.head_factors(head_scores)
        moments = factors.new_zeros(len(factors), 2, factors.shape[1])  # sums of w h and of w
        for reversed_, reached in reach:
            scan = Scan(grid, dependent_scores, values, kept, reversed_)
            scan.forward(factors, rows_of(reached, grid.plan.chunk, scan.chunks), moments)
        summed, total = (part.reshape(head_scores.shape) for part in moments[:-1].unbind(1))
        inverse = torch.where(total > 0, total.reciprocal(), 0.0)
        context = summed * inverse
        ctx.save_for_backward(head_scores, dependent_scores, values, kept, context, inverse)
        ctx.settings = reach, grid
        return context.to(head_scores.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        head_scores, dependent_scores, values, kept, context, inverse = ctx.saved_tensors
        reach, grid = ctx.settings
        factors, scaled = grid.head_factors(head_scores), gradient * inverse
        # Gradients of the sums of w h and of w; a last row of zeros for slots without a head.
        flow = torch.stack([scaled, -scaled * context], 2).flatten(0, 1)  # [M J, 2, D]
        flow = torch.cat([flow, flow.new_zeros(1, *flow.shape[1:])])
        by_head = torch.zeros_like(factors)
        by_score, by_value = torch.zeros_like(dependent_scores), torch.zeros_like(values)
        for reversed_, reached in reach:
            scan = Scan(grid, dependent_scores, values, kept, reversed_)
            rows = rows_of(reached, grid.plan.chunk, scan.chunks)
            score, value = scan.backward(factors, rows, flow, by_head)
            by_score += score
            by_value += value
        by_head = by_head[:-1].reshape(head_scores.shape).to(head_scores.dtype)
        return by_head, by_score, by_value, None, None, None


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
    if error is None or min(heads.longest, dependents.longest) < _FEWEST:
        return None
    positions = heads.gathered(), dependents.gathered()
    with torch.autocast(values.device.type, enabled=False):
        v = heads.padded(_at_least_float32(head_scores))
        u, h = (dependents.padded(_at_least_float32(part)) for part in (dependent_scores, values))
        plan = make_plan(u, positions[1], scale, error)
        if plan is None or not is_worth_it(plan, heads.longest, dependents.longest, speed):
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

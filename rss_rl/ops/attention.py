"""Feature-wise (multi-dimensional) additive attention between gathered heads and dependents.

Legend: M sequences, J heads, I dependents, D features.
Source: Shen et al., DiSAN (AAAI 2018), equation 4 of Shen et al., ReSAN (IJCAI 2018).
"""

from __future__ import annotations

__all__ = ["allowed_pairs", "feature_wise_attention"]

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rss_rl.ops.masking import Gathered

_BLOCK_ELEMENTS = 1 << 19
"""Pair features of a block: 2 MB in float32, so that the passes over it stay in the cache."""


def allowed_pairs(heads: Gathered, dependents: Gathered, *, forward: bool) -> Tensor:
    """Which dependents a head may look at: kept ones strictly before it, or after it.

    Args:
        heads: positions [M, J]. dependents: positions [M, I].
        forward: True for i < j (a head looks back), False for i > j.

    Returns:
        bool [M, J, I].
    """
    position_j, position_i = heads.index[:, :, None], dependents.index[:, None, :]
    ordered = position_i < position_j if forward else position_i > position_j
    return ordered & heads.kept[:, :, None] & dependents.kept[:, None, :]


def feature_wise_attention(
    head_scores: Tensor, dependent_scores: Tensor, values: Tensor, allowed: Tensor, scale: float
) -> Tensor:
    """s_j = sum_i P^j_i * h_i with P^j = softmax over allowed i of c tanh((u_i + v_j) / c).

    Each feature has its own softmax. The logit never exceeds c, so exp(logit - c) needs no running
    maximum. A head without an allowed dependent gets 0.

    Args:
        head_scores: v = W2 x_j + b, [M, J, D].
        dependent_scores: u = W1 x_i, [M, I, D].
        values: h, [M, I, D].
        allowed: bool [M, J, I].
        scale: c > 0.

    Returns:
        [M, J, D].

    Raises:
        ValueError: on shapes that do not fit.
    """
    if (
        dependent_scores.shape != values.shape
        or allowed.dtype != torch.bool
        or allowed.shape != (*head_scores.shape[:2], values.shape[1])
        or head_scores.shape[::2] != values.shape[::2]
    ):
        raise ValueError(
            f"heads {tuple(head_scores.shape)}, dependents {tuple(dependent_scores.shape)},"
            f" values {tuple(values.shape)} and allowed {allowed.dtype} {tuple(allowed.shape)}"
            " do not fit"
        )
    return _Attention.apply(head_scores, dependent_scores, values, allowed, scale)  # type: ignore[no-any-return, no-untyped-call]


def _blocks(sequences: int, pairs: int) -> list[slice]:
    """Cuts of the sequences whose temporaries stay within the cache, [m, J, I, D] each."""
    step = max(1, _BLOCK_ELEMENTS // max(1, pairs))
    return [slice(start, start + step) for start in range(0, sequences, step)]


def _weights(
    head_scores: Tensor, dependent_scores: Tensor, allowed: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """q and the unnormalised weights exp(c tanh(s / c) - c) = exp(-2 c q), both [m, J, I, D].

    tanh(x) = 1 - 2 q with q = sigmoid(-2 x), which is several times cheaper than tanh, as exp2 is
    than exp, and is exact for arguments of any size.
    """
    pairs = head_scores[:, :, None, :] + dependent_scores[:, None, :, :]
    q = pairs.mul_(-2.0 / scale).sigmoid_()
    weights = (q * (-2.0 * scale / math.log(2.0))).exp2_()
    return q, weights.mul_(allowed[..., None])


class _Attention(torch.autograd.Function):
    """Blockwise forward and hand-written backward: no tensor of all pairs outlives its block."""

    @staticmethod
    def forward(
        ctx: Any,
        head_scores: Tensor,
        dependent_scores: Tensor,
        values: Tensor,
        allowed: Tensor,
        scale: float,
    ) -> Tensor:
        context = torch.empty_like(head_scores)
        inverse = torch.empty_like(head_scores)  # 1 / sum of weights, 0 where nothing is allowed
        for block in _blocks(len(values), head_scores.shape[1] * values.shape[1] * values.shape[2]):
            _, weights = _weights(
                head_scores[block], dependent_scores[block], allowed[block], scale
            )
            total = weights.sum(2)
            inverse[block] = torch.where(total > 0, total.reciprocal(), 0.0)
            context[block] = weights.mul_(values[block][:, None]).sum(2) * inverse[block]
        ctx.save_for_backward(head_scores, dependent_scores, values, allowed, context, inverse)
        ctx.scale = scale
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """With w = P_ji g_j: dh_i = sum_j w; ds_ji = w (h_i - s_j) 4 q (1 - q); du, dv its sums."""
        head_scores, dependent_scores, values, allowed, context, inverse = ctx.saved_tensors
        scaled = gradient * inverse
        by_head, by_dependent = torch.empty_like(head_scores), torch.empty_like(values)
        by_value = torch.empty_like(values)
        for block in _blocks(len(values), head_scores.shape[1] * values.shape[1] * values.shape[2]):
            q, flow = _weights(
                head_scores[block], dependent_scores[block], allowed[block], ctx.scale
            )
            flow.mul_(scaled[block][:, :, None])
            by_value[block] = flow.sum(1)
            flow.mul_(values[block][:, None] - context[block][:, :, None])
            flow.mul_(q).mul_(q.neg_().add_(1.0)).mul_(4.0)
            by_head[block], by_dependent[block] = flow.sum(2), flow.sum(1)
        return by_head, by_dependent, by_value, None, None

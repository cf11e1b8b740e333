"""Corrections of the policy-gradient loss for selections that an older policy drew.

An episode is one decision, so the importance ratio of a selection is the product of its bits'
ratios r_i = p(bit i) / p_behaviour(bit i), the target policy over the behaviour policy, whether
bits are independent or p(bit i) is that under the bits before it (the chain rule). Every form
weighs the score function of a bit by some w_i: its loss has the gradient -A sum_i w_i d log p_i.
Where both policies are one, every w_i is 1: the loss of `policy_gradient_loss`.

Legend: K selections, B sentences, R roles, N tokens; A advantage, r importance ratio.
Sources: Espeholt et al. 2018 (V-trace, here at horizon 1); Schulman et al. 2017 (clipping).
"""

from __future__ import annotations

__all__ = [
    "Correction",
    "Weighted",
    "clipped_token",
    "ratio_sums",
    "truncated_sum",
    "truncated_token",
]

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

_LARGEST_LOG_RATIO = 20.0
"""A bit that the behaviour policy held for impossible must not make an infinite loss."""


class Weighted(NamedTuple):
    """A corrected loss and how it came about; all but the loss without gradient.

    loss     [K, B] of each selection
    ratio    r, [K, B] of the selections or [K, B, R, N] of their bits
    weight   w of the same shape
    clipped  bool, True = truncation or clipping changed the weight
    counted  bool, False = nothing was decided here: padding, or certain under both policies
    """

    loss: Tensor
    ratio: Tensor
    weight: Tensor
    clipped: Tensor
    counted: Tensor


Correction = Callable[[Tensor, Tensor, Tensor, float], Weighted]
"""(log-prob, behaviour log-prob, advantages, limit) to a corrected loss."""


def _check(log_prob: Tensor, behaviour: Tensor, advantages: Tensor, *, summed: bool) -> None:
    shape = log_prob.shape
    if (
        len(shape) != 4
        or advantages.shape != shape[:2]
        or behaviour.shape != (shape[:2] if summed else shape)
    ):
        raise ValueError(
            f"log-probs {tuple(shape)}, those of the behaviour policy {tuple(behaviour.shape)}"
            f" and advantages {tuple(advantages.shape)} do not fit"
        )


def truncated_sum(
    log_prob: Tensor, behaviour: Tensor, advantages: Tensor, ratio_max: float
) -> Weighted:
    """-w A sum_i log p_i with w = min(rho_max, prod_i r_i), one weight a selection.

    Args:
        log_prob: [K, B, R, N], differentiable. behaviour: [K, B], sums over the bits.
        advantages: [K, B], treated as constants. ratio_max: rho_max > 0.
    """
    _check(log_prob, behaviour, advantages, summed=True)
    summed = log_prob.sum((-1, -2))  # [K, B]
    log_ratio = summed.detach() - behaviour
    weight = log_ratio.clamp(max=math.log(ratio_max)).exp()
    return Weighted(
        -weight * advantages.detach() * summed,
        log_ratio.clamp(max=_LARGEST_LOG_RATIO).exp(),
        weight,
        log_ratio > math.log(ratio_max),
        (summed.detach() != 0) | (behaviour != 0),
    )


def truncated_token(
    log_prob: Tensor, behaviour: Tensor, advantages: Tensor, ratio_max: float
) -> Weighted:
    """-A sum_i w_i log p_i with w_i = min(rho_max, r_i), a weight for each bit.

    Args:
        log_prob: [K, B, R, N], differentiable. behaviour: [K, B, R, N].
        advantages: [K, B], treated as constants. ratio_max: rho_max > 0.
    """
    _check(log_prob, behaviour, advantages, summed=False)
    log_ratio = log_prob.detach() - behaviour  # [K, B, R, N]
    weight = log_ratio.clamp(max=math.log(ratio_max)).exp()
    return Weighted(
        -advantages.detach() * (weight * log_prob).sum((-1, -2)),
        log_ratio.clamp(max=_LARGEST_LOG_RATIO).exp(),
        weight,
        log_ratio > math.log(ratio_max),
        (log_prob.detach() != 0) | (behaviour != 0),
    )


def clipped_token(
    log_prob: Tensor, behaviour: Tensor, advantages: Tensor, ratio_clip: float
) -> Weighted:
    """-sum_i min(r_i A, clip(r_i, 1 - eps, 1 + eps) A): w_i = r_i, or 0 where clipping binds.

    Args:
        log_prob: [K, B, R, N], differentiable. behaviour: [K, B, R, N].
        advantages: [K, B], treated as constants. ratio_clip: eps in (0, 1).
    """
    _check(log_prob, behaviour, advantages, summed=False)
    ratio = (log_prob - behaviour).clamp(max=_LARGEST_LOG_RATIO).exp()  # [K, B, R, N]
    by_bit = advantages.detach()[..., None, None]
    gain = torch.minimum(ratio * by_bit, ratio.clamp(1 - ratio_clip, 1 + ratio_clip) * by_bit)
    counted = (log_prob.detach() != 0) | (behaviour != 0)
    plain = ratio.detach()
    binds = ((plain > 1 + ratio_clip) & (by_bit > 0)) | ((plain < 1 - ratio_clip) & (by_bit < 0))
    return Weighted(
        -(gain * counted).sum((-1, -2)), plain, torch.where(binds, 0.0, plain), binds, counted
    )


def ratio_sums(weighted: Weighted) -> Tensor:
    """Sums over what counts of [1, r, clipped, w, w^2], and the largest r: float64 [6].

    Those of several shards add up, except the last, whose maximum is that of the whole.
    """
    counted = weighted.counted
    ratio = weighted.ratio.double() * counted
    weight = weighted.weight.double() * counted
    sums = [counted, ratio, weighted.clipped & counted, weight, weight.square()]
    largest = ratio.max() if ratio.numel() else ratio.new_zeros(())
    return torch.stack([*(part.sum().double() for part in sums), largest])

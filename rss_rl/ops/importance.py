"""Off-policy corrections of the policy-gradient loss.

An episode is one decision: the selections of all sentences of an example, on which its rewards
depend jointly. The importance ratio of that decision is the product over the bits of all its slots
of r_i = p(bit i) / p_behaviour(bit i), the target policy over the behaviour policy, whether bits
are independent or p(bit i) is conditional on the bits before it (the chain rule). Every form
weights the score function of a bit by some w_i; the gradient of its loss is

    -sum_s A_s sum_(i in s) w_i d log p_i

On policy every w_i is 1, as in `policy_gradient_loss`.

truncated-sum    w = min(rho_max, prod of all r_j), one weight per example. Unbiased while nothing
                 is truncated. The ratio of one slot alone would not be: A_s depends on the other
                 slots' selections, too.
clipped-token    w_i = r_i, or 0 where PPO's clipping binds: for bits that have moved far. All other
                 bits count as on policy, as PPO ignores the change of the state distribution: the
                 trust region keeps it small, not the weights.

Legend: S slots, K selections, B examples, R roles, N_s tokens of slot s; A advantage, r importance
ratio.
Sources: Espeholt et al. 2018 (V-trace, here at horizon 1); Schulman et al. 2017 (clipping).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

_LARGEST_LOG_RATIO = 20.0
"""A bit that is impossible under the behaviour policy must not make the loss infinite."""


class Weighted(NamedTuple):
    """Losses, and the weights that corrected them, if any did; only losses have a gradient.

    losses   S x [K, B] of each selection
    ratio    r, one [K, B] of the decisions, or S x [K, B, R, N_s] of the bits
    weight   w of the same shapes
    clipped  bool, True = truncation or clipping changed the weight
    counted  bool, False = nothing was decided here: padding, or certain under both policies
    """

    losses: list[Tensor]
    ratio: Sequence[Tensor] = ()
    weight: Sequence[Tensor] = ()
    clipped: Sequence[Tensor] = ()
    counted: Sequence[Tensor] = ()


Correction = Callable[[Sequence[Tensor], Sequence[Tensor], Tensor, float], Weighted]
"""(log-probs, behaviour log-probs, advantages, limit) to corrected losses."""


def _check(
    log_prob: Sequence[Tensor], behaviour: Sequence[Tensor], advantages: Tensor, *, summed: bool
) -> None:
    """Raise ValueError unless the shapes fit."""
    fit = len(log_prob) == len(behaviour) == advantages.shape[-1] and advantages.ndim == 3
    for now, before in zip(log_prob, behaviour, strict=False):
        shape = now.shape
        fit &= now.ndim == 4 and shape[:2] == advantages.shape[:2]
        fit &= before.shape == (shape[:2] if summed else shape)
    if not fit:
        raise ValueError(
            f"log-probs {[tuple(part.shape) for part in log_prob]}, those of the behaviour policy"
            f" {[tuple(part.shape) for part in behaviour]} and advantages"
            f" {tuple(advantages.shape)} do not fit"
        )


def truncated_sum(
    log_prob: Sequence[Tensor], behaviour: Sequence[Tensor], advantages: Tensor, ratio_max: float
) -> Weighted:
    """-w A_s sum_i log p_si with w = min(rho_max, prod_s prod_i r_si), one weight per example.

    Args:
        log_prob: S x [K, B, R, N_s], differentiable. behaviour: S x [K, B], sums over the bits.
        advantages: [K, B, S], treated as constants. ratio_max: rho_max > 0.

    Raises:
        ValueError: shapes that do not fit.
    """
    _check(log_prob, behaviour, advantages, summed=True)
    summed = [part.sum((-1, -2)) for part in log_prob]  # S x [K, B]
    by_slot = [now.detach() - before for now, before in zip(summed, behaviour, strict=True)]
    log_ratio = torch.stack(by_slot).sum(0)  # [K, B]
    weight = log_ratio.clamp(max=math.log(ratio_max)).exp()
    constants = advantages.detach().unbind(-1)
    decided = [
        (now.detach() != 0) | (before != 0) for now, before in zip(summed, behaviour, strict=True)
    ]
    return Weighted(
        [-weight * advantage * part for advantage, part in zip(constants, summed, strict=True)],
        [log_ratio.clamp(max=_LARGEST_LOG_RATIO).exp()],
        [weight],
        [log_ratio > math.log(ratio_max)],
        [torch.stack(decided).any(0)],
    )


def clipped_token(
    log_prob: Sequence[Tensor], behaviour: Sequence[Tensor], advantages: Tensor, ratio_clip: float
) -> Weighted:
    """-sum_i min(r_si A_s, clip(r_si, 1 - eps, 1 + eps) A_s).

    So w_si = r_si, or 0 where clipping binds.

    Args:
        log_prob: S x [K, B, R, N_s], differentiable. behaviour: of the same shapes.
        advantages: [K, B, S], treated as constants. ratio_clip: eps in (0, 1).

    Raises:
        ValueError: shapes that do not fit.
    """
    _check(log_prob, behaviour, advantages, summed=False)
    low, high = 1 - ratio_clip, 1 + ratio_clip
    parts: list[list[Tensor]] = [[], [], [], [], []]  # those of `Weighted`
    for slot, (now, before) in enumerate(zip(log_prob, behaviour, strict=True)):
        ratio = (now - before).clamp(max=_LARGEST_LOG_RATIO).exp()  # [K, B, R, N_s]
        advantage = advantages[..., slot].detach()[..., None, None]
        gain = torch.minimum(ratio * advantage, ratio.clamp(low, high) * advantage)
        real = (now.detach() != 0) | (before != 0)
        plain = ratio.detach()
        binds = ((plain > high) & (advantage > 0)) | ((plain < low) & (advantage < 0))
        loss, weight = -(gain * real).sum((-1, -2)), torch.where(binds, 0.0, plain)
        for gathered, part in zip(parts, (loss, plain, weight, binds, real), strict=True):
            gathered.append(part)
    return Weighted(*parts)


def ratio_sums(weighted: Weighted) -> Tensor:
    """Sums over counted entries of [1, r, clipped, w, w^2], and the largest r: float64 [6].

    Over several shards the sums add up; of the last entry the maximum is taken.
    """
    parts = []
    for ratio, weight, clipped, counted in zip(*weighted[1:], strict=True):
        r, w = ratio.double() * counted, weight.double() * counted
        largest = r.max() if r.numel() else r.new_zeros(())
        sums = [counted, r, clipped & counted, w, w.square()]
        parts.append(torch.stack([*(part.sum().double() for part in sums), largest]))
    every = torch.stack(parts)  # [1 or S, 6]
    return torch.cat([every[:, :5].sum(0), every[:, 5:].max(0).values])

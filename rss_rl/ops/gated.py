"""Masked reductions with gates instead of masks, so that a selection is differentiable.

A gate g in [0, 1] multiplies the weight of its token. Where gates are 0 and 1, results are those of
the functions of `masking` and `attention` with the mask g = 1, and gates of 0 still get a gradient.

Legend: M sequences, N tokens, D features.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rss_rl.ops.attention import KernelBackend, feature_wise_attention
from rss_rl.ops.packing import Pairs

_LARGEST_SURPLUS = 20.0
"""How far a logit of a closed gate may exceed those of the open ones: it bounds the gradient."""


def _quotient(total: Tensor, weight: Tensor) -> Tensor:
    """total / weight; 0, with gradient 0, where the weight is 0."""
    some = weight > 0
    return torch.where(some, total / torch.where(some, weight, 1.0), 0.0)


def union(gates: Tensor) -> Tensor:
    """Gate of a token in either role, the larger one: [M, 2, N] to [M, N].

    Equal gates get half of the gradient each, so a policy that draws one bit for both roles gets
    all of it, whether the bit is 0 or 1; 1 - (1 - head)(1 - dependent) has the same value, but no
    gradient where the bit is 1.
    """
    return torch.maximum(gates[:, 0], gates[:, 1])


def gated_softmax(logits: Tensor, gates: Tensor) -> Tensor:
    """g_i exp(l_i) / sum_k g_k exp(l_k) over dimension 1; 0 where every gate is 0.

    Args:
        logits: [M, N, D]. gates: [M, N], 0 on padding.
    """
    if not gates.numel():
        return logits
    opened = (gates > 0)[..., None]
    largest = logits.detach().masked_fill(~opened, -torch.inf).amax(1, keepdim=True)
    largest = torch.where(largest.isfinite(), largest, 0.0)
    weights = (logits - largest).clamp(max=_LARGEST_SURPLUS).exp() * gates[..., None]
    return _quotient(weights, weights.sum(1, keepdim=True).expand_as(weights))


def gated_mean(values: Tensor, gates: Tensor) -> Tensor:
    """sum_i g_i v_i / sum_i g_i over dimension 1 of [M, N, D]; gates [M, N]; [M, D]."""
    total = (values * gates[..., None]).sum(1)
    return _quotient(total, gates.sum(1, keepdim=True).expand_as(total))


def gated_attention(
    head_scores: Tensor,
    dependent_scores: Tensor,
    values: Tensor,
    pairs: Pairs,
    scale: float,
    gates: Tensor,
    backend: KernelBackend = "eager",
) -> Tensor:
    """s_j = sum_i g_i w_ji h_i / sum_i g_i w_ji with the weights w of `feature_wise_attention`.

    Both sums are computed as that attention, over g h and over g: the common divisor cancels.

    Args:
        head_scores, dependent_scores, values, pairs, scale, backend: see there, over all valid
            tokens.
        gates: [M, I] of the dependents.
    """
    opened = gates[..., None].expand_as(values)
    arguments = (head_scores, dependent_scores)
    total = feature_wise_attention(*arguments, opened * values, pairs, scale, backend)
    weight = feature_wise_attention(*arguments, opened.contiguous(), pairs, scale, backend)
    return _quotient(total, weight)

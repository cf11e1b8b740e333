"""Losses of the learners and of the task heads, per example.

Legend: M examples, C classes or score bins, K selections, B sentences, R roles, N tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def score_targets(scores: Tensor, bins: int, low: float, high: float) -> Tensor:
    """The distribution over evenly spaced bin values whose mean is the score (Tai et al. 2015).

    The mass is shared between the two bins next to the score; y = high gives the last bin 1.

    Args:
        scores: [M] in [low, high].

    Returns:
        [M, bins].
    """
    position = (scores - low) * ((bins - 1) / (high - low))  # [M], in bins
    distance = (position[:, None] - torch.arange(bins, device=scores.device)).abs()
    return (1 - distance).clamp_min(0.0)


def expected_score(logits: Tensor, low: float, high: float) -> Tensor:
    """The score sum_k value_k p_k of [M, C] logits over bins evenly spaced in [low, high]; [M]."""
    # Not a matrix product: autocast would round the score to three digits.
    bins = torch.linspace(low, high, logits.shape[-1], dtype=logits.dtype, device=logits.device)
    return (torch.softmax(logits, -1) * bins).sum(-1)


def score_divergence(logits: Tensor, scores: Tensor, low: float, high: float) -> Tensor:
    """KL(target distribution || p) of each example, [M]."""
    target = score_targets(scores, logits.shape[-1], low, high)
    return (torch.xlogy(target, target) - target * torch.log_softmax(logits, -1)).sum(-1)


def soft_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """-sum_c q_c log p_c of each example, [M]; classes with q_c = 0 add nothing, even at p_c = 0.

    Args:
        logits: of p, [M, C].
        targets: the distribution q, [M, C], treated as a constant.

    Source: Hinton, Vinyals and Dean, Distilling the Knowledge in a Neural Network (2015).
    """
    targets = targets.detach()
    log_probs = torch.log_softmax(logits, -1).masked_fill(targets == 0, 0.0)
    return -(targets * log_probs).sum(-1)


def policy_gradient_loss(log_prob: Tensor, advantages: Tensor) -> Tensor:
    """-A log p of each selection, [K, B]: the gradient of its mean is minus the REINFORCE estimate.

    Args:
        log_prob: of each bit, [K, B, R, N], differentiable.
        advantages: [K, B], treated as constants.
    """
    if log_prob.ndim != 4 or log_prob.shape[:2] != advantages.shape:
        raise ValueError(f"log-probs {tuple(log_prob.shape)}, advantages {tuple(advantages.shape)}")
    return -advantages.detach() * log_prob.sum((-1, -2))


def role_cost(
    probabilities: Tensor, valid: Tensor, costs: Sequence[float], weights: Tensor | None = None
) -> Tensor:
    """sum_r cost_r * (expected share of the tokens in role r), summed over the sentences, [].

    Args:
        probabilities: [B, R, N] of selecting each token, 0 on padding.
        valid: bool [B, N].
        costs: of each role, nats.
        weights: of the sentences in the sum, [B]; None: 1.
    """
    expected = probabilities.sum(-1) / valid.sum(-1, keepdim=True).clamp_min(1)
    by_role = expected * expected.new_tensor(costs)
    return (by_role if weights is None else by_role * weights[:, None]).sum()

"""Bernoulli selections from logits, with bits independent or drawn in sequence.

Legend: K samples, B sentences, R roles, N tokens. p = sigmoid(logit).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from rss_rl.types import ROLES

_HALVINGS, _LEAST_SLOPE = 30, 1e-4


def sample(logits: Tensor, valid: Tensor, uniforms: Tensor) -> Tensor:
    """Selections b_i = [u_i < p_i] on real tokens, False on padding.

    Args:
        logits: [B, R, N]. valid: bool [B, N]. uniforms: [K, B, R, N] in (0, 1).

    Returns:
        bool [K, B, R, N].
    """
    if uniforms.ndim != 4 or uniforms.shape[1:] != logits.shape:
        raise ValueError(
            f"uniforms {tuple(uniforms.shape)} do not fit logits {tuple(logits.shape)}"
        )
    return (uniforms < torch.sigmoid(logits)) & valid[:, None, :]


def log_prob(logits: Tensor, selection: Tensor, valid: Tensor) -> Tensor:
    """log p of each bit of a selection, 0 on padding; their sum is that of the selection.

    Args:
        logits: [B, R, N], or [K, B, R, N] where a bit's depends on the bits before it.
        selection: bool [K, B, R, N]. valid: bool [B, N].

    Returns:
        [K, B, R, N].
    """
    fits = selection.ndim == 4 and selection.shape[-logits.ndim :] == logits.shape
    if selection.dtype != torch.bool or not fits:
        raise ValueError(
            f"selection must be bool [K, {', '.join(map(str, logits.shape[-3:]))}],"
            f" got {selection.dtype} {tuple(selection.shape)}"
        )
    by_token = F.logsigmoid(torch.where(selection, logits, -logits))  # [K, B, R, N]
    return by_token * valid[:, None, :]


def entropy(logits: Tensor, valid: Tensor) -> Tensor:
    """Mean entropy in nats of the selection bits of each sentence; 0 for an empty one.

    Logits [..., B, R, N] and valid bool [B, N] give [..., B].
    """
    bits = (valid.sum(-1) * logits.shape[-2]).clamp_min(1)
    return (bit_entropy(logits) * valid[:, None, :]).sum((-1, -2)) / bits


def bit_entropy(logits: Tensor) -> Tensor:
    """H_i = p_i softplus(-logit_i) + (1 - p_i) softplus(logit_i) of each bit, in nats."""
    chance = torch.sigmoid(logits)
    return chance * F.softplus(-logits) + (1 - chance) * F.softplus(logits)


def log_odds(probability: float) -> float:
    """The logit of a probability in (0, 1)."""
    return math.log(probability / (1 - probability))


def both_roles(log_prob: Tensor) -> Tensor:
    """[K, B, R, N] to [K, B, 2, N]; a bit that decides both roles counts once, as the head's."""
    missing = ROLES - log_prob.shape[2]
    return F.pad(log_prob, (0, 0, 0, missing)) if missing else log_prob


def even_logits(scores: Tensor, valid: Tensor, share: Tensor) -> Tensor:
    """Scores less a level of each sentence and role, at which their mean probability is `share`.

    The level is found by bisection. A Newton step, of about 0, gives it the gradient of the
    implicit function.

    Args:
        scores: [B, R, N]. valid: bool [B, N]. share: [R] in (0, 1).

    Returns:
        [B, R, N], meaningless on padding.
    """
    if not scores.numel():
        return scores
    real = valid[:, None].to(scores.dtype)
    wanted = share[:, None] * real.sum(-1, keepdim=True)  # [B, R, 1]
    with torch.no_grad():
        offset = torch.logit(share)[:, None]
        level = low = scores.masked_fill(~valid[:, None], torch.inf).amin(-1, keepdim=True) - offset
        high = scores.masked_fill(~valid[:, None], -torch.inf).amax(-1, keepdim=True) - offset
        for _ in range(_HALVINGS):
            level = (low + high) / 2
            more = (torch.sigmoid(scores - level) * real).sum(-1, keepdim=True) > wanted
            low, high = torch.where(more, level, low), torch.where(more, high, level)
        level = level.nan_to_num()  # of a sentence without tokens
        chance = torch.sigmoid(scores - level)
        slope = (chance * (1 - chance) * real).sum(-1, keepdim=True).clamp_min(_LEAST_SLOPE)
    excess = (torch.sigmoid(scores - level) * real).sum(-1, keepdim=True) - wanted
    return scores - level - excess / slope

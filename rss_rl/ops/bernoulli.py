"""Bernoulli selections from logits, with bits independent or drawn in sequence.

Legend: K samples, B sentences, R roles, N tokens. p = sigmoid(logit).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from rss_rl.types import ROLES

_ROUNDS, _PARTS, _LEAST_SLOPE = 4, 16, 1e-4
_NEVER = -1e4
"""A logit at which p, the entropy, the log-prob of a bit that is not set and their gradients are
exactly 0."""


def never_on_padding(logits: Tensor, valid: Tensor) -> Tensor:
    """Logits [..., B, R, N], by which no bit outside of valid [B, N] is set: masks need no more."""
    return logits.masked_fill(~valid[:, None], _NEVER)


def log_prob(logits: Tensor, selection: Tensor) -> Tensor:
    """log p of each bit of a selection, 0 on padding; their sum is that of the selection.

    Args:
        logits: from `never_on_padding`, [B, R, N], or [K, B, R, N] where a bit's depends on the
            bits before it.
        selection: bool [K, B, R, N], False on padding.

    Returns:
        [K, B, R, N].
    """
    fits = selection.ndim == 4 and selection.shape[-logits.ndim :] == logits.shape
    if selection.dtype != torch.bool or not fits:
        raise ValueError(
            f"selection must be bool [K, {', '.join(map(str, logits.shape[-3:]))}],"
            f" got {selection.dtype} {tuple(selection.shape)}"
        )
    return F.logsigmoid(logits * (selection * 2.0 - 1.0))


def entropy(logits: Tensor, chances: Tensor, valid: Tensor) -> Tensor:
    """Mean entropy in nats of the selection bits of each sentence; 0 for an empty one.

    H_i = softplus(logit_i) - p_i logit_i of each bit, and dH_i = -logit_i dp_i.

    Args:
        logits: from `never_on_padding`, [..., B, R, N]. chances: p, of the same shape.
        valid: bool [B, N].

    Returns:
        [..., B].
    """
    bits = (valid.sum(-1) * logits.shape[-2]).clamp_min(1)
    fixed = logits.detach()
    return torch.addcmul(F.softplus(fixed), fixed, chances, value=-1).sum((-1, -2)) / bits


def log_odds(probability: float) -> float:
    """The logit of a probability in (0, 1)."""
    return math.log(probability / (1 - probability))


def both_roles(log_prob: Tensor) -> Tensor:
    """[K, B, R, N] to [K, B, 2, N]; a bit that decides both roles counts once, as the head's."""
    missing = ROLES - log_prob.shape[2]
    return F.pad(log_prob, (0, 0, 0, missing)) if missing else log_prob


def even_logits(scores: Tensor, valid: Tensor, share: Tensor) -> Tensor:
    """Scores less a level of each sentence and role, at which their mean probability is `share`.

    The level is found by cutting its interval into 16 parts, four times. A Newton step, of about 0,
    gives it the gradient of the implicit function.

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
        kept = scores.masked_fill(~valid[:, None], -torch.inf)  # padding has probability 0
        offset = torch.logit(share)[:, None]
        low = scores.masked_fill(~valid[:, None], torch.inf).amin(-1, keepdim=True) - offset
        width = kept.amax(-1, keepdim=True) - offset - low
        steps = torch.arange(1, _PARTS, dtype=scores.dtype, device=scores.device)
        for _ in range(_ROUNDS):
            width = width / _PARTS
            levels = low + width * steps  # [B, R, 15]
            sums = torch.sigmoid(kept[:, :, None] - levels[..., None]).sum(-1)
            low = low + width * (sums > wanted).sum(-1, keepdim=True)
        level = low + width / 2
        level = level.nan_to_num()  # of a sentence without tokens
        chance = torch.sigmoid(scores - level)
        slope = (chance * (1 - chance) * real).sum(-1, keepdim=True).clamp_min(_LEAST_SLOPE)
    excess = (torch.sigmoid(scores - level) * real).sum(-1, keepdim=True) - wanted
    return scores - level - excess / slope

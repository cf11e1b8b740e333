"""Gradients of the expected reward with respect to the logits of independent bits.

Each estimates d E f(b) / d phi_i for b_i ~ Bernoulli(p_i), p = sigmoid(phi). A bit is drawn as
b_i = [u_i < p_i]; the second selection of an antithetic pair uses 1 - u.

Legend: K selections, B sentences, R roles, N tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class BitRewards(NamedTuple):
    """Selections, their rewards, and what they were drawn from; all without gradient.

    logits     phi, [B, R, N]
    valid      bool [B, N]
    uniforms   u, [K, B, R, N], that the selections were drawn from
    selection  bool [K, B, R, N]
    rewards    f, [K, B]
    flipped    [K, B, R, N], f of the selection with this bit flipped; None if not requested
    """

    logits: Tensor
    valid: Tensor
    uniforms: Tensor
    selection: Tensor
    rewards: Tensor
    flipped: Tensor | None = None


def antithetic(uniforms: Tensor) -> Tensor:
    """The first half of u [K, ...], then its mirror 1 - u; K even."""
    half = len(uniforms) // 2
    if len(uniforms) % 2:
        raise ValueError(f"{len(uniforms)} selections cannot be drawn in pairs")
    return torch.cat([uniforms[:half], 1 - uniforms[:half]])


def _halves(bits: BitRewards) -> tuple[Tensor, Tensor, Tensor]:
    """Differences of reward within the pairs, [K/2, B, 1, 1], and first and second selections."""
    half = len(bits.rewards) // 2
    difference = bits.rewards[:half] - bits.rewards[half:]
    return difference[..., None, None], bits.selection[:half], bits.selection[half:]


def arm(bits: BitRewards) -> Tensor:
    """(f(1 - u) - f(u)) (u_i - 1/2), mean over pairs, [B, R, N] (Yin and Zhou 2019)."""
    difference, _, _ = _halves(bits)
    half = len(bits.rewards) // 2
    return (difference * (0.5 - bits.uniforms[:half])).mean(0)


def disarm(bits: BitRewards) -> Tensor:
    """1/2 (f(b) - f(b~)) (b_i - b~_i) sigmoid(|phi_i|), mean over pairs, [B, R, N].

    ARM with the uniforms integrated out given both selections. Sources: Dong, Mnih and Tucker 2020;
    Yin et al. 2020.
    """
    difference, first, second = _halves(bits)
    sign = first.to(bits.logits.dtype) - second.to(bits.logits.dtype)
    return (0.5 * difference * sign * torch.sigmoid(bits.logits.abs())).mean(0)


def flip(bits: BitRewards) -> Tensor:
    """p_i (1 - p_i) (f(b, b_i = 1) - f(b, b_i = 0)), mean over selections, [B, R, N].

    The exact expectation over one bit, given the others (Titsias and Lázaro-Gredilla 2015).

    Raises:
        ValueError: there are no rewards of flipped bits.
    """
    if bits.flipped is None:
        raise ValueError("the flip estimator needs the rewards of flipped bits")
    gain = bits.rewards[..., None, None] - bits.flipped  # [K, B, R, N]
    gain = torch.where(bits.selection, gain, -gain)
    chance = torch.sigmoid(bits.logits)
    return (chance * (1 - chance) * gain).mean(0)

"""A reward on every selection of a few bits, the exact gradient, and estimates of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from rss_rl.ops import advantages
from rss_rl.ops.estimators import BitRewards, antithetic, arm, disarm, flip


def every_mask(bits: int) -> Tensor:
    """bool [2^bits, bits]; mask m has the bits of the number m, the lowest first."""
    numbers = torch.arange(2**bits)
    return (numbers[:, None] >> torch.arange(bits)) % 2 == 1


def number(masks: Tensor) -> Tensor:
    """Number of each mask, [..., bits] to int64 [...]."""
    return (masks.long() << torch.arange(masks.shape[-1])).sum(-1)


def rewards_of(bits: int, seed: int = 0) -> Tensor:
    """float64 [2^bits]: tanh of a random quadratic form minus 0.3 x the share kept."""
    draw = torch.Generator().manual_seed(seed)
    linear = torch.randn(bits, generator=draw, dtype=torch.float64)
    pairs = torch.randn(bits, bits, generator=draw, dtype=torch.float64) / bits**0.5
    masks = every_mask(bits).double()
    score = masks @ linear + ((masks @ pairs) * masks).sum(-1)
    return torch.nn.functional.logsigmoid(torch.tanh(score) * 2) - 0.3 * masks.mean(-1)


def exact_gradient(logits: Tensor, rewards: Tensor) -> Tensor:
    """d E f / d logits, [bits]: a sum over all masks."""
    phi = logits.detach().clone().requires_grad_()
    masks = every_mask(len(phi))
    log_prob = torch.where(masks, phi, -phi).sigmoid().log().sum(-1)
    (gradient,) = torch.autograd.grad((log_prob.exp() * rewards).sum(), phi)
    return gradient


def score_function(paid: BitRewards, advantages: Tensor) -> Tensor:
    """1/K sum_k A_k (b_ki - p_i), [B, R, N]: REINFORCE (Williams 1992), advantages [K, B]."""
    score = paid.selection.to(paid.logits.dtype) - torch.sigmoid(paid.logits)
    return (advantages[..., None, None] * score).mean(0)


def _leave_one_out(paid: BitRewards) -> Tensor:
    return score_function(paid, advantages.leave_one_out(paid.rewards))


ESTIMATORS: Mapping[str, tuple[Callable[[BitRewards], Tensor], int, bool]] = {
    "reinforce, no baseline": (lambda paid: score_function(paid, paid.rewards), 1, False),
    "leave-one-out K=2": (_leave_one_out, 2, False),
    "leave-one-out K=4": (_leave_one_out, 4, False),
    "leave-one-out K=8": (_leave_one_out, 8, False),
    "arm": (arm, 2, True),
    "disarm": (disarm, 2, True),
    "disarm, 2 pairs": (disarm, 4, True),
    "flip": (flip, 1, False),
}
"""The estimator, K, and whether the second half of the selections mirrors the first."""


def estimates(name: str, logits: Tensor, rewards: Tensor, repeats: int, seed: int = 0) -> Tensor:
    """Independent estimates of the gradient, [repeats, bits]."""
    estimate, samples, pairs = ESTIMATORS[name]
    draw = torch.Generator().manual_seed(seed)
    bits = len(logits)
    uniforms = torch.rand(samples, repeats, 1, bits, generator=draw, dtype=torch.float64)
    uniforms = antithetic(uniforms) if pairs else uniforms
    selection = uniforms < torch.sigmoid(logits)
    flipped = None
    if name == "flip":
        turned = selection[..., None, :] ^ torch.eye(bits, dtype=torch.bool)
        flipped = rewards[number(turned)]
    paid = BitRewards(
        logits.expand(repeats, 1, bits),
        torch.ones(repeats, bits, dtype=torch.bool),
        uniforms,
        selection,
        rewards[number(selection)][..., 0],
        flipped,
    )
    return estimate(paid)[:, 0]


def evaluations(name: str, bits: int) -> int:
    """Rewards that one estimate pays for."""
    samples = ESTIMATORS[name][1]
    return samples * (bits + 1) if name == "flip" else samples

"""Gates in [0, 1] that are often exactly 0 or 1, as differentiable functions of uniform numbers.

Legend: K samples, B sentences, R roles, N tokens.
Sources: Jang et al. 2017 and Maddison et al. 2017 (Gumbel-sigmoid); Bengio et al. 2013
(straight-through); Bastings, Aziz and Titov, ACL 2019 (HardKuma).
"""

from __future__ import annotations

import torch
from torch import Tensor


def straight_through(logits: Tensor, valid: Tensor, uniforms: Tensor, temperature: float) -> Tensor:
    """Gates b = [u < p] with the gradient of y = sigmoid((logit - logit(u)) / temperature).

    The forward value is `bernoulli.sample` of the same uniforms, as floats. y > 1/2 where b = 1.

    Args:
        logits: [B, R, N]. valid: bool [B, N]. uniforms: [K, B, R, N] in (0, 1).

    Returns:
        [K, B, R, N].
    """
    noise = torch.log1p(-uniforms) - torch.log(uniforms)  # -logit(u)
    soft = torch.sigmoid((logits + noise) / temperature)
    hard = (uniforms < torch.sigmoid(logits)).to(soft.dtype)
    # y - y first: (hard + y) - y would not be exactly 0 or 1.
    return (hard + (soft - soft.detach())) * valid[:, None].to(soft.dtype)


def kuma_log_tail(a: Tensor, b: Tensor, point: float) -> Tensor:
    """log P(k > x) = b log(1 - x^a) of a Kumaraswamy variable k on (0, 1), x in (0, 1)."""
    return b * torch.log1p(-torch.pow(point, a))


def kuma_gates(a: Tensor, b: Tensor, uniforms: Tensor, low: float, high: float) -> Tensor:
    """min(1, max(0, low + (high - low) k)) with k = (1 - (1 - u)^(1/b))^(1/a).

    With low < 0 and high > 1 the ends 0 and 1 have positive probability; the gradient there is 0.

    Args:
        a, b: > 0, [B, R, N]. uniforms: [K, B, R, N] in (0, 1).
    """
    base = -torch.expm1(torch.log1p(-uniforms) / b)  # 1 - (1 - u)^(1/b), exact even if tiny
    tiny = torch.finfo(base.dtype).tiny
    k = torch.exp(torch.log(base.clamp_min(tiny)) / a)
    return (low + (high - low) * k).clamp(0.0, 1.0)


def changes(kept: Tensor, valid: Tensor) -> Tensor:
    """Expected number of places where a selection changes, for independent bits; [...].

    sum_i p_i (1 - p_{i+1}) + (1 - p_i) p_{i+1}; for p of 0 and 1, sum_i |z_{i+1} - z_i|.

    Args:
        kept: p, [..., B, R, N]. valid: bool [B, N], True first.

    Returns:
        [..., B], summed over the roles.
    """
    before, after = kept[..., :-1], kept[..., 1:]
    both = (valid[:, 1:] & valid[:, :-1])[:, None].to(kept.dtype)
    return ((before * (1 - after) + (1 - before) * after) * both).sum((-1, -2))


def expected_costs(
    kept: Tensor, valid: Tensor, *, sparsity: float, product: bool, coherence: float
) -> tuple[Tensor, Tensor]:
    """Expected costs of a sentence's selections, for independent bits; [B] each, in nats.

    sparsity * (H + D) or, as a product, sparsity * H * D, with H and D the expected shares of heads
    and of dependents; and coherence * expected changes / n.

    Args:
        kept: probability of each bit, [B, 2, N], 0 on padding. valid: bool [B, N], True first.
    """
    sizes = valid.sum(-1).clamp_min(1).to(kept.dtype)  # [B]
    shares = kept.sum(-1) / sizes[:, None]  # [B, 2]
    cost = sparsity * (shares.prod(1) if product else shares.sum(1))
    turns = coherence * changes(kept, valid) / sizes if coherence else torch.zeros_like(cost)
    return cost, turns

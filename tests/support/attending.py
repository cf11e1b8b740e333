"""Inputs of feature-wise attention, and results to compare."""

from __future__ import annotations

import torch
from torch import Tensor

from rss_rl.ops.attention import feature_wise_attention, native_attention
from rss_rl.ops.masking import kept_indices
from rss_rl.ops.packing import Order, PackedPairs, Pairs, kept_cells

C = 5.0


def pairs_of(
    sequences: int, tokens: int, share: float, order: Order, *, seed: int = 0, aside: bool = False
) -> Pairs:
    """Heads and dependents drawn with probability `share`; at most one sequence has all, or none.

    Args:
        aside: tokens that are not kept stay between the others, and are not gathered away.
    """
    generator = torch.Generator().manual_seed(seed)
    keep = torch.rand(2, sequences, tokens, generator=generator) < share
    keep[:, 0], keep[:, -1] = True, False
    if not aside:
        return Pairs(kept_indices(keep[0]), kept_indices(keep[1]), order)
    whole = kept_indices(torch.ones(sequences, tokens, dtype=torch.bool))
    heads, dependents = (type(whole)(whole.index, kept) for kept in keep)
    return Pairs(heads, dependents, order)


def inputs_of(pairs: Pairs, features: int, *, spread: float = 1.0, seed: int = 0) -> list[Tensor]:
    """Head scores, dependent scores and values, float64, with gradients."""
    generator = torch.Generator().manual_seed(seed)
    m, j, i = pairs.shape

    def normal(tokens: int) -> Tensor:
        return torch.randn(m, tokens, features, generator=generator, dtype=torch.float64)

    drawn = spread * normal(j), spread * normal(i), normal(i)
    return [tensor.requires_grad_() for tensor in drawn]


def outcome(attend: object, inputs: list[Tensor]) -> list[Tensor]:
    """The context and the gradients of its sum of squares by each input."""
    context = attend(*inputs)  # type: ignore[operator]
    return [context.detach(), *torch.autograd.grad(context.square().sum(), inputs)]


def reference(inputs: list[Tensor], pairs: Pairs) -> list[Tensor]:
    """`outcome` by torch's own operations in float64."""
    wide = [tensor.detach().double().requires_grad_() for tensor in inputs]
    return outcome(lambda *given: feature_wise_attention(*given, pairs, C), wide)


def single(inputs: list[Tensor]) -> list[Tensor]:
    """The same in float32."""
    return [tensor.detach().float().requires_grad_() for tensor in inputs]


def padded_native(v: Tensor, u: Tensor, h: Tensor, pairs: Pairs, scale: float) -> Tensor:
    """`native_attention` of the kept ones of padded sequences, [M, J, D]; it refuses no shape."""
    (cells, heads), (shown, dependents) = map(kept_cells, (pairs.heads, pairs.dependents))
    rows = v.flatten(0, 1)[cells], u.flatten(0, 1)[shown], h.flatten(0, 1)[shown]
    context = native_attention(*rows, PackedPairs(heads, dependents, pairs.order), scale)
    return v.new_zeros(v.shape).flatten(0, 1).index_copy(0, cells, context).view(v.shape)

"""Feature-wise attention by the package's CPU kernels: O(M (J + I) D) memory.

Legend: D features; X heads and Y dependents of all sequences, R rows of either.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rss_rl.ops.attention_pairs import PackedPairs
from rss_rl.ops.operators import Attending, attention_backward, attention_forward
from rss_rl.ops.packing import Packed


def native_attention(
    head_scores: Tensor,
    dependent_scores: Tensor,
    values: Tensor,
    pairs: PackedPairs,
    scale: float,
) -> Tensor:
    """`packed_attention` for CPU tensors of one type, float32 or float64.

    A row's result is bit-identical whatever else is in the batch and however many threads run.

    Raises:
        OutOfRange: a score or the scale is too large, or not a number.
        KernelsError: this machine cannot compile the kernels.
    """
    inputs = head_scores, dependent_scores, values
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        return _Native.apply(*inputs, pairs, scale)  # type: ignore[no-any-return, no-untyped-call]
    given = _given(*inputs, pairs, scale)
    context = torch.empty_like(given.head_scores)
    attention_forward(given, context, None, None, None)
    return context


def side_of(tokens: Packed) -> tuple[Tensor, Tensor]:
    """Positions of rows, int64 [R], and the rows' `starts`."""
    return tokens.position.contiguous(), tokens.starts.contiguous()


def _given(v: Tensor, u: Tensor, h: Tensor, pairs: PackedPairs, scale: float) -> Attending:
    """v [X, D], u and h [Y, D] of these pairs."""
    heads = side_of(pairs.heads)
    dependents = heads if pairs.dependents is pairs.heads else side_of(pairs.dependents)
    v, u, h = (tensor.detach().contiguous() for tensor in (v, u, h))
    return Attending(v, u, None, h, *heads, *dependents, pairs.order, scale)


class _Native(torch.autograd.Function):
    """Computes ds_j / dv_j in the forward pass, the gradients of u and h in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        head_scores: Tensor,
        dependent_scores: Tensor,
        values: Tensor,
        pairs: PackedPairs,
        scale: float,
    ) -> Tensor:
        given = _given(head_scores, dependent_scores, values, pairs, scale)
        # s, 1 / sum of weights, ds_j / dv_j
        context, inverse, by_head = (torch.empty_like(given.head_scores) for _ in range(3))
        attention_forward(given, context, inverse, by_head, None)
        ctx.save_for_backward(*given[:-2], context, inverse, by_head)
        ctx.rest = given[-2:]
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        *saved, context, inverse, by_head = ctx.saved_tensors
        given = Attending(*saved, *ctx.rest)
        sides = given.head_scores, given.dependent_scores, given.values
        dv, du, dh = map(torch.empty_like, sides)
        made = context, inverse, by_head
        attention_backward(given, made, gradient.contiguous(), None, dv, du, dh, None)
        return dv, du, dh, None, None

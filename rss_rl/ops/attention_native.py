"""Feature-wise attention by the package's own kernels for a CPU: O(M (J + I) D) memory.

Legend: D features; X heads and Y dependents of all sequences, R rows of either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rss_rl.ops.attention_pairs import Order, PackedPairs
from rss_rl.ops.operators import attention_backward, attention_forward
from rss_rl.ops.packing import Packed


def native_attention(
    head_scores: Tensor,
    dependent_scores: Tensor,
    values: Tensor,
    pairs: PackedPairs,
    scale: float,
) -> Tensor:
    """As `packed_attention`, of tensors on the CPU of one type, float32 or float64.

    A row's result does not depend, not even in its last bit, on what else is in the batch or on the
    number of threads.

    Raises:
        OutOfRange: a score or the scale is too large, or not a number.
        KernelsError: they cannot be compiled here.
    """
    inputs = head_scores, dependent_scores, values
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        return _Native.apply(*inputs, pairs, scale)  # type: ignore[no-any-return, no-untyped-call]
    return _Call.of(*inputs, pairs, scale).forward(train=False)[0]


def side_of(tokens: Packed) -> tuple[Tensor, Tensor]:
    """Positions of rows, int64 [R], and the rows' `starts`."""
    return tokens.position.contiguous(), tokens.starts.contiguous()


@dataclass(frozen=True)
class _Call:
    """What the kernels are given.

    inputs  v [X, D], u and h [Y, D]
    sides   positions and starts of the heads, and of the dependents
    """

    inputs: tuple[Tensor, Tensor, Tensor]
    sides: tuple[Tensor, ...]
    order: Order
    scale: float

    @classmethod
    def of(cls, v: Tensor, u: Tensor, h: Tensor, pairs: PackedPairs, scale: float) -> _Call:
        """Of what `native_attention` is given."""
        heads = side_of(pairs.heads)
        dependents = heads if pairs.dependents is pairs.heads else side_of(pairs.dependents)
        v, u, h = (tensor.detach().contiguous() for tensor in (v, u, h))
        return cls((v, u, h), (*heads, *dependents), pairs.order, scale)

    def forward(self, *, train: bool) -> tuple[Tensor, ...]:
        """s [X, D]; to `train` also 1 / sum of weights and ds_j / dv_j."""
        made = [torch.empty_like(self.inputs[0]) for _ in range(3 if train else 1)]
        attention_forward(*self._given, *made, *(None,) * (4 - len(made)))
        return tuple(made)

    def backward(self, *made: Tensor) -> tuple[Tensor, ...]:
        """dv, du and dh, of what `forward` made and the gradient by s."""
        found = tuple(torch.empty_like(tensor) for tensor in self.inputs)
        attention_backward(*self._given, *made, None, False, *found, None)
        return found

    @property
    def _given(self) -> tuple[Any, ...]:
        v, u, h = self.inputs
        return v, u, None, h, *self.sides, self.order, self.scale


class _Native(torch.autograd.Function):
    """The gradient by head is made in the forward pass, those by dependent in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        head_scores: Tensor,
        dependent_scores: Tensor,
        values: Tensor,
        pairs: PackedPairs,
        scale: float,
    ) -> Tensor:
        call = _Call.of(head_scores, dependent_scores, values, pairs, scale)
        context, inverse, by_head = call.forward(train=True)
        ctx.save_for_backward(*call.inputs, *call.sides, context, inverse, by_head)
        ctx.rest = pairs.order, scale
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        v, u, h, *sides, context, inverse, by_head = ctx.saved_tensors
        call = _Call((v, u, h), tuple(sides), *ctx.rest)
        return *call.backward(context, inverse, by_head, gradient.contiguous()), None, None

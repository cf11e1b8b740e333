"""Feature-wise attention by Triton kernels on CUDA: O(M (J + I) D) memory.

Scores out of the quotient form's range are detected on the device, without synchronisation.

Legend: M sequences, J heads, I dependents, D features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rss_rl.ops.attention_triton_kernels import (
    FEATURES,
    ROWS,
    backward_kernel,
    forward_kernel,
    prepare_kernel,
)
from rss_rl.ops.masking import Gathered
from rss_rl.ops.packing import Order, Pairs

_LARGEST_SCORE = 20.0
"""The device rounds 2u/c twice to get E, which shifts a weight by up to 6e-8 |u| each time.

Half the limit of the CPU kernels, whose power function rounds once.
"""
_LARGEST_EXPONENT = 40.0
"""Keeps E F below e^80, and E and F from underflowing to 0."""
_MIRRORED: dict[Order, Order] = {"before": "after", "after": "before"}


def triton_attention(
    head_scores: Tensor, dependent_scores: Tensor, values: Tensor, pairs: Pairs, scale: float
) -> Tensor:
    """`feature_wise_attention` for non-empty float32 tensors.

    They are on a CUDA device, or on any device if Triton interprets its kernels. A row's result is
    bit-identical whatever else is in the batch.
    """
    inputs = head_scores, dependent_scores, values
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        return _Attention.apply(*inputs, pairs, scale)  # type: ignore[no-any-return, no-untyped-call]
    rows = _Rows.take(*inputs, pairs, scale)
    return rows.forward(train=False)[0]


@dataclass(frozen=True)
class _Rows:
    """Kernel inputs computed from the scores.

    f           e^(2v/c), or v where far, [M, J, D]
    e           e^(2u/c), or u where far, [M, I, D]
    values      h, [M, I, D]
    heads       positions, int32 [M, J]; -1 where none is kept
    dependents  the same, [M, I]
    far         int32 [M, tiles of features], 1 = scores out of range
    """

    f: Tensor
    e: Tensor
    values: Tensor
    heads: Tensor
    dependents: Tensor
    far: Tensor
    order: Order
    scale: float

    @classmethod
    def take(
        cls, head_scores: Tensor, dependent_scores: Tensor, values: Tensor, pairs: Pairs, c: float
    ) -> _Rows:
        """From the arguments of `triton_attention`."""
        v, u, h = (t.detach().contiguous() for t in (head_scores, dependent_scores, values))
        heads = _positions(pairs.heads)
        same = pairs.dependents is pairs.heads
        dependents = heads if same else _positions(pairs.dependents)
        f, e = torch.empty_like(v), torch.empty_like(u)
        far = heads.new_empty(v.shape[0], _tiles(v.shape[2], FEATURES))
        rows = cls(f, e, h, heads, dependents, far, pairs.order, float(c))
        bound = min(_LARGEST_SCORE, _LARGEST_EXPONENT * c / 2.0)
        with torch.cuda.device_of(v):  # type: ignore[no-untyped-call]
            prepare_kernel[(far.numel(),)](
                v, u, heads, dependents, f, e, far, *rows._sizes, bound, SCALE=rows.scale
            )
        return rows

    def forward(self, *, train: bool) -> list[Tensor]:
        """The context and, for training, 1 / sum of weights and ds_j / dv_j; each [M, J, D]."""
        results = [torch.empty_like(self.f) for _ in range(3 if train else 1)]
        written = (results * 3)[:3]  # the kernel writes the last two only for training
        constants = {"ORDER": self.order, "TRAIN": train}
        self._launch(forward_kernel, written, self.f.shape[1], constants)
        return results

    def backward(self, context: Tensor, scaled: Tensor) -> list[Tensor]:
        """dh and du, [M, I, D], from the context and g / sum of weights, [M, J, D]."""
        results = [torch.empty_like(self.e) for _ in range(2)]
        constants = {"ORDER": _MIRRORED[self.order]}
        self._launch(backward_kernel, [context, scaled, *results], self.e.shape[1], constants)
        return results

    def _launch(
        self, kernel: Any, tensors: list[Tensor], rows: int, constants: dict[str, Any]
    ) -> None:
        mine = self.f, self.e, self.values, self.heads, self.dependents, self.far
        programs = self.far.numel() * _tiles(rows, ROWS)
        with torch.cuda.device_of(self.f):  # type: ignore[no-untyped-call]
            kernel[(programs,)](*mine, *tensors, *self._sizes, SCALE=self.scale, **constants)

    @property
    def _sizes(self) -> tuple[int, int, int]:
        """J, I, D."""
        return (self.f.shape[1], *self.e.shape[1:])


def _tiles(count: int, size: Any) -> int:
    return -(-count // int(size.value))


def _positions(tokens: Gathered) -> Tensor:
    return torch.where(tokens.kept, tokens.index, -1).to(torch.int32).contiguous()


class _Attention(torch.autograd.Function):
    """Computes ds_j / dv_j in the forward pass, the gradients of u and h in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        head_scores: Tensor,
        dependent_scores: Tensor,
        values: Tensor,
        pairs: Pairs,
        scale: float,
    ) -> Tensor:
        rows = _Rows.take(head_scores, dependent_scores, values, pairs, scale)
        results = rows.forward(train=True)
        ctx.save_for_backward(
            *results, rows.f, rows.e, rows.values, rows.heads, rows.dependents, rows.far
        )
        ctx.rest = pairs.order, scale
        return results[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        context, inverse, by_head, *kept = ctx.saved_tensors
        rows = _Rows(*kept, *ctx.rest)
        by_value, by_score = rows.backward(context, (gradient * inverse).contiguous())
        return gradient * by_head, by_score, by_value, None, None

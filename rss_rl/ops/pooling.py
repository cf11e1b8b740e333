"""Means of tokens, weighted by a softmax for each feature: the last step of source2token.

Legend: M sequences, N tokens, D features; T tokens that are one sequence's own.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rss_rl.ops.attention import KernelBackend
from rss_rl.ops.masking import masked_softmax
from rss_rl.ops.native import OutOfRange, one_kind
from rss_rl.ops.operators import pooling_backward, pooling_forward
from rss_rl.ops.packing import Packed


def feature_wise_pooling(
    scores: Tensor, values: Tensor, kept: Tensor, backend: KernelBackend = "eager"
) -> Tensor:
    """sum_i P_i x_i with P = softmax over the kept tokens; zeros where none is kept.

    Args:
        scores: [M, N, D], or [M, N, 1] for all features. values: x, [M, N, D]. kept: bool [M, N].
        backend: compiled kernels need float32 on the CPU and a score for each feature.

    Returns:
        [M, D].

    Raises:
        ValueError: a mask of another shape or type.
    """
    alike = scores.shape == values.shape and scores.dtype == values.dtype == torch.float32
    if backend == "compiled" and alike and scores.device.type == "cpu":
        tokens = Packed.of([kept])
        cells = tokens.sequence * kept.shape[1] + tokens.position
        score, value = (each.flatten(0, 1).index_select(0, cells) for each in (scores, values))
        return packed_pooling(score, value, tokens)
    return (masked_softmax(scores, kept) * values).sum(1)


def packed_pooling(
    scores: Tensor, values: Tensor, tokens: Packed, backend: KernelBackend = "compiled"
) -> Tensor:
    """`feature_wise_pooling` of all tokens, without padding.

    Args:
        scores: [R, D], or [R, 1] for all features. values: x, [R, D].
        backend: compiled kernels need float32 or float64 on the CPU and a score for each feature;
            other input is padded.

    Returns:
        [M, D].

    Raises:
        ValueError: shapes or types that do not fit.
        KernelsError: this machine cannot compile the kernels.
    """
    by_feature = scores.shape[1:] == values.shape[1:]
    if backend == "compiled" and by_feature and one_kind((scores, values)):
        with suppress(OutOfRange):
            return _Pooling.apply(scores, values, tokens.starts.contiguous())  # type: ignore[no-any-return, no-untyped-call]
    kept = tokens.gathered.kept
    return feature_wise_pooling(tokens.padded(scores), tokens.padded(values), kept)


def packed_shared_pooling(
    rows: tuple[Tensor, Tensor],
    cells: Tensor,
    tokens: Packed,
    times: int,
    common: tuple[Tensor, Tensor],
    backend: KernelBackend = "compiled",
) -> Tensor:
    """`packed_pooling` of K copies of `tokens`, some with scores and values of their own.

    Args:
        rows: scores and values of those, [T, D] each. cells: their flat index in [K, R], int64 [T].
        times: K. common: scores and values [R, D] of all others.

    Returns:
        [K M, D].

    Raises:
        ValueError: shapes or types that do not fit.
        KernelsError: this machine cannot compile the kernels.
    """
    scores, values = (
        base.repeat(times, 1).index_copy(0, cells, part)
        for base, part in zip(common, rows, strict=True)
    )
    return packed_pooling(scores, values, tokens.repeated(times), backend)


class _Pooling(torch.autograd.Function):
    """A pass over the tokens for the largest score, one for the sums, and one in backward."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, values: Tensor, starts: Tensor) -> Tensor:
        inputs = scores.contiguous(), values.contiguous(), starts
        shape = len(starts) - 1, scores.shape[1]
        pooled, largest, inverse = scores.new_empty(3, *shape).unbind()
        pooling_forward(*inputs, pooled, largest, inverse)
        ctx.save_for_backward(*inputs, pooled, largest, inverse)
        return pooled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        scores, values, starts, *results = ctx.saved_tensors
        by_score, by_value = scores.new_empty(2, *scores.shape)
        flow = gradient.contiguous()
        pooling_backward(scores, values, starts, results, flow, by_score, by_value)
        return by_score, by_value, None

"""Means of tokens, weighted by a softmax for each feature: source2token's last step.

Legend: M sequences, N tokens, D features; T tokens that are one sequence's own.
"""

from __future__ import annotations

__all__ = ["feature_wise_pooling", "packed_pooling", "packed_shared_pooling", "shared_pooling"]

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rss_rl.ops.attention import KernelBackend
from rss_rl.ops.masking import masked_softmax
from rss_rl.ops.native import OutOfRange, one_kind
from rss_rl.ops.operators import pooling_backward, pooling_forward, shared_pooling_forward
from rss_rl.ops.packing import Packed, even_starts
from rss_rl.ops.tracing import recording


def feature_wise_pooling(
    scores: Tensor, values: Tensor, kept: Tensor, backend: KernelBackend = "eager"
) -> Tensor:
    """sum_i P_i x_i with P = softmax over the kept tokens; zeros where none is kept.

    Args:
        scores: [M, N, D], or [M, N, 1] for all features. values: x, [M, N, D]. kept: bool [M, N].
        backend: compiled kernels are for float32 on the CPU and a score for each feature.

    Returns:
        [M, D].

    Raises:
        ValueError: a mask of another shape or type.
    """
    alike = scores.shape == values.shape and scores.dtype == values.dtype == torch.float32
    _check_kept(kept, values.shape[:2])
    if backend == "compiled" and alike and scores.device.type == "cpu" and not recording():
        with suppress(OutOfRange):
            return _Pooling.apply(scores, values, kept)  # type: ignore[no-any-return, no-untyped-call]
    return (masked_softmax(scores, kept) * values).sum(1)


def _check_kept(kept: Tensor, shape: Sequence[int]) -> None:
    if kept.dtype != torch.bool or kept.shape != tuple(shape):
        raise ValueError(f"kept: bool {tuple(shape)}, got {kept.dtype} {tuple(kept.shape)}")


def packed_pooling(scores: Tensor, values: Tensor, tokens: Packed) -> Tensor:
    """`feature_wise_pooling` of all tokens [R, D] by the kernels of a CPU, without padding; [M, D].

    Raises:
        ValueError: on shapes or types that do not fit.
        KernelsError: this machine cannot compile them.
    """
    fits = scores.shape == values.shape and len(scores) == len(tokens) and scores.ndim == 2
    if not fits or not one_kind((scores, values)):
        raise ValueError(
            f"scores {tuple(scores.shape)} {scores.dtype} and values {tuple(values.shape)}"
            f" {values.dtype} do not fit {len(tokens)} tokens on the CPU"
        )
    with suppress(OutOfRange):
        return _Pooling.apply(scores, values, tokens)  # type: ignore[no-any-return, no-untyped-call]
    kept = tokens.gathered().kept
    return feature_wise_pooling(tokens.padded(scores), tokens.padded(values), kept)


def packed_shared_pooling(
    rows: tuple[Tensor, Tensor],
    cells: Tensor,
    tokens: Packed,
    times: int,
    common: tuple[Tensor, Tensor],
) -> Tensor:
    """`packed_pooling` of `tokens`, repeated, of which some have scores and values of their own.

    Args:
        rows: scores and values of those, [T, D] each. cells: int64 [T], which of the K R they are.
        times: K. common: scores and values [R, D] of all others.

    Returns:
        [K M, D].

    Raises:
        ValueError: on shapes or types that do not fit.
        KernelsError: this machine cannot compile what computes it.
    """
    _check_shared(rows, cells, len(tokens), times, common)
    learns = torch.is_grad_enabled() and any(t.requires_grad for t in (*rows, *common))
    if not learns:
        own = torch.full((times * len(tokens),), -1, dtype=torch.int64)
        own[cells] = torch.arange(len(cells))
        with suppress(OutOfRange):
            return _run_shared(rows, own, None, tokens.starts.contiguous(), times, common)
    scores, values = (
        base.repeat(times, 1).index_copy(0, cells, part)
        for base, part in zip(common, rows, strict=True)
    )
    return packed_pooling(scores, values, tokens.repeated(times))


def _check_shared(
    rows: tuple[Tensor, Tensor],
    cells: Tensor,
    tokens: int,
    times: int,
    common: tuple[Tensor, Tensor],
) -> None:
    """The kernel reads whatever stands where it is told to."""
    every = (*rows, *common)
    shapes = [(len(cells), rows[0].shape[-1])] * 2 + [(tokens, rows[0].shape[-1])] * 2
    inside = not len(cells) or (int(cells.min()) >= 0 and int(cells.max()) < times * tokens)
    if [tensor.shape for tensor in every] != shapes or not one_kind(every) or not inside:
        raise ValueError(
            f"{[(tuple(tensor.shape), tensor.dtype) for tensor in every]} do not fit {len(cells)}"
            f" cells of {times} times {tokens} tokens on the CPU"
        )


def shared_pooling(
    rows: tuple[Tensor, Tensor],
    places: tuple[Tensor, Tensor],
    kept: Tensor,
    common: tuple[Tensor, Tensor] | None,
    backend: KernelBackend = "eager",
) -> Tensor:
    """`feature_wise_pooling` of M sequences of which only some tokens are their own.

    Args:
        rows: scores and values of those, [T, D] each.
        places: int64 [T], of each the sequence and the token there.
        kept: bool [M, N].
        common: scores and values [B, N, D] of all other tokens, M a multiple of B and sequence m
            reading m mod B; None where every kept token has its own row.

    Returns:
        [M, D].

    Raises:
        ValueError: tensors that do not fit.
    """
    scores, values = rows
    _check_common(rows, kept, common)
    alike = scores.shape == values.shape and scores.dtype == values.dtype == torch.float32
    learns = torch.is_grad_enabled() and any(t.requires_grad for t in (*rows, *(common or ())))
    if backend == "compiled" and alike and scores.device.type == "cpu" and not learns:
        with suppress(OutOfRange):
            return _pool_shared(rows, places, kept, common)
    whole = []
    for number, part in enumerate(rows):
        if common is None:
            base = part.new_zeros(*kept.shape, part.shape[-1])
        else:
            base = common[number].repeat(len(kept) // max(1, len(common[number])), 1, 1)
        whole.append(base.index_put(places, part))
    return feature_wise_pooling(whole[0], whole[1], kept, backend)


def _check_common(
    rows: tuple[Tensor, Tensor], kept: Tensor, common: tuple[Tensor, Tensor] | None
) -> None:
    _check_kept(kept, kept.shape[:2])
    if common is None:
        return
    shape, dtype = (len(common[0]), kept.shape[1], rows[0].shape[-1]), rows[0].dtype
    whole = not len(kept) or (shape[0] > 0 and len(kept) % shape[0] == 0)
    if not whole or any(part.shape != shape or part.dtype != dtype for part in common):
        raise ValueError(
            f"common {[(tuple(part.shape), part.dtype) for part in common]} do not fit kept"
            f" {tuple(kept.shape)} and rows {tuple(rows[0].shape)} {dtype}"
        )


def _pool_shared(
    rows: tuple[Tensor, Tensor],
    places: tuple[Tensor, Tensor],
    kept: Tensor,
    common: tuple[Tensor, Tensor] | None,
) -> Tensor:
    own = torch.full(kept.shape, -1, dtype=torch.int64)
    own[places] = torch.arange(len(rows[0]))
    shared = len(kept) if common is None else len(common[0])
    base = None if common is None else (common[0].flatten(0, 1), common[1].flatten(0, 1))
    times = len(kept) // max(1, shared)
    starts = even_starts(shared, kept.shape[1])
    return _run_shared(rows, own.flatten(), kept.contiguous().flatten(), starts, times, base)


def _run_shared(
    rows: tuple[Tensor, Tensor],
    own: Tensor,
    kept: Tensor | None,
    starts: Tensor,
    times: int,
    common: tuple[Tensor, Tensor] | None,
) -> Tensor:
    scores, values = (None, None) if common is None else (t.contiguous() for t in common)
    mine = (tensor.contiguous() for tensor in rows)
    pooled = rows[0].new_empty(times * (len(starts) - 1), rows[0].shape[1])
    shared_pooling_forward(scores, values, starts, kept, *mine, own, pooled)
    return pooled


class _Pooling(torch.autograd.Function):
    """One pass over the tokens for the largest score and one for the sums; one on the way back.

    Of [M, N, D] where `tokens` is bool [M, N], of [R, D] where they are packed.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, values: Tensor, tokens: Tensor | Packed) -> Tensor:
        if isinstance(tokens, Packed):
            starts, kept = tokens.starts.contiguous(), None
        else:
            starts, kept = even_starts(*tokens.shape), tokens.contiguous().flatten()
        rows = (tensor.contiguous().flatten(0, -2) for tensor in (scores, values))
        given = (*rows, starts, kept)
        made = [scores.new_empty(len(starts) - 1, scores.shape[-1]) for _ in range(3)]
        pooling_forward(*given, *made)
        ctx.save_for_backward(*given, *made)
        ctx.shape = scores.shape
        return made[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        found = [torch.empty_like(ctx.saved_tensors[0]) for _ in range(2)]
        pooling_backward(*ctx.saved_tensors, gradient.contiguous(), *found)
        return found[0].view(ctx.shape), found[1].view(ctx.shape), None

"""Feature-wise (multi-dimensional) additive attention between gathered heads and dependents.

Legend: M sequences, J heads, I dependents, D features; X heads and Y dependents of all
sequences, R rows of either. The CPU kernels take O(M (J + I) D) memory.
Source: Shen et al., DiSAN (AAAI 2018), equation 4 of Shen et al., ReSAN (IJCAI 2018).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rss_rl.ops.native import OutOfRange, one_kind, runs_triton
from rss_rl.ops.operators import Attending, attention_backward, attention_forward
from rss_rl.ops.packing import Packed, PackedPairs, Pairs, joined, kept_cells

KernelBackend = Literal["eager", "compiled"]
"""Which implementation runs: torch operations block by block, or compiled kernels.

compiled  C++ kernels on the CPU, for attention, pooling, linear maps and gates; Triton kernels on
          CUDA, for attention, where Triton is installed

They agree within rounding, not bit for bit.
"""

_ELEMENTS = 1 << 19
"""Most elements of a temporary: 2 MB in float32, so that repeated passes stay in the cache."""
_ELEMENTS_ON_DEVICE = 1 << 24
"""64 MB on an accelerator, where kernel launches for small blocks would dominate."""


def feature_wise_attention(
    head_scores: Tensor,
    dependent_scores: Tensor,
    values: Tensor,
    pairs: Pairs | Tensor,
    scale: float,
    backend: KernelBackend = "eager",
) -> Tensor:
    """s_j = sum_i P^j_i * h_i with P^j = softmax over allowed i of c tanh((u_i + v_j) / c).

    Each feature has its own softmax. The logit never exceeds c, so exp(logit - c) needs no running
    maximum. A head without an allowed dependent gets 0. Half precision is computed in float32.

    Args:
        head_scores: v = W2 x_j + b, [M, J, D].
        dependent_scores: u = W1 x_i, [M, I, D].
        values: h, [M, I, D].
        pairs: which pairs are allowed; or as bool [M, J, I].
        scale: c > 0.
        backend: kernels support float32 and `Pairs`, on the CPU only scores for which their
            quotients are exact; all else falls back to eager, which is always exact.

    Returns:
        [M, J, D], in the type of `values`.

    Raises:
        ValueError: shapes that do not fit.
    """
    _check(head_scores, dependent_scores, values, pairs)
    inputs = head_scores, dependent_scores, values
    if any(tensor.dtype in (torch.bfloat16, torch.float16) for tensor in inputs):
        with torch.autocast(values.device.type, enabled=False):
            v, u, h = (tensor.float() for tensor in inputs)
            return feature_wise_attention(v, u, h, pairs, scale, backend).to(values.dtype)
    fits = all(tensor.dtype == torch.float32 and tensor.numel() for tensor in inputs)
    if backend == "compiled" and isinstance(pairs, Pairs) and fits:
        device = values.device
        if device.type == "cuda" and runs_triton(device):
            from rss_rl.ops.attention_triton import triton_attention  # imports Triton

            return triton_attention(*inputs, pairs, scale)
        if device.type == "cpu":
            return _packed(*inputs, pairs, scale)
    return _Attention.apply(*inputs, pairs, scale)  # type: ignore[no-any-return, no-untyped-call]


def _packed(v: Tensor, u: Tensor, h: Tensor, pairs: Pairs, scale: float) -> Tensor:
    """`packed_attention` of padded sequences, [M, J, D]."""
    heads = kept_cells(pairs.heads)
    dependents = heads if pairs.dependents is pairs.heads else kept_cells(pairs.dependents)
    by_head = v.flatten(0, 1).index_select(0, heads[0])
    by_dependent, value = (t.flatten(0, 1).index_select(0, dependents[0]) for t in (u, h))
    packed = PackedPairs(heads[1], dependents[1], pairs.order)
    context = packed_attention(by_head, by_dependent, value, packed, scale)
    return v.new_zeros(v.shape).flatten(0, 1).index_copy(0, heads[0], context).view(v.shape)


def packed_attention(
    head_scores: Tensor,
    dependent_scores: Tensor,
    values: Tensor,
    pairs: PackedPairs,
    scale: float,
    backend: KernelBackend = "compiled",
) -> Tensor:
    """`feature_wise_attention` without padding.

    Args:
        head_scores: [X, D]. dependent_scores, values: [Y, D].
        backend: the CPU kernels support float32 and float64; other input is padded.

    Returns:
        [X, D].

    Raises:
        ValueError: shapes or types that do not fit.
        KernelsError: this machine cannot compile the kernels.
    """
    inputs = head_scores, dependent_scores, values
    if backend == "compiled" and one_kind(inputs):
        with suppress(OutOfRange):
            return native_attention(*inputs, pairs, scale)
        backend = "eager"
    return joined([_padded(*run, scale, backend) for run in _runs(*inputs, pairs, backend)])


def _padded(
    v: Tensor, u: Tensor, h: Tensor, pairs: PackedPairs, scale: float, backend: KernelBackend
) -> Tensor:
    heads, dependents = pairs.heads, pairs.dependents
    padded = heads.padded(v), dependents.padded(u), dependents.padded(h)
    return heads.unpadded(feature_wise_attention(*padded, pairs.padded(), scale, backend))


def _runs(
    v: Tensor, u: Tensor, h: Tensor, pairs: PackedPairs, backend: KernelBackend
) -> Iterator[tuple[Tensor, Tensor, Tensor, PackedPairs]]:
    """Runs of sequences, each padded to its own longest; blocks for eager on the CPU."""
    sequences = len(pairs.heads.starts) - 1
    step = sequences
    if backend == "eager" and h.device.type == "cpu":
        shape = pairs.heads.longest, pairs.dependents.longest, h.shape[1]
        step = max(1, _ELEMENTS // max(1, math.prod(shape)))
    if step >= sequences:
        yield v, u, h, pairs
        return
    starts = range(0, sequences, step)
    heads, dependents = (
        [side.part(slice(start, start + step)) for start in starts]
        for side in (pairs.heads, pairs.dependents)
    )
    looking, seen = ([len(part) for part in parts] for parts in (heads, dependents))
    # `split` assembles its gradient once; slices would do so once per slice.
    rows = zip(torch.split(v, looking), torch.split(u, seen), torch.split(h, seen), strict=True)
    for tensors, head_side, dependent_side in zip(rows, heads, dependents, strict=True):
        yield *tensors, PackedPairs(head_side, dependent_side, pairs.order)


def _check(
    head_scores: Tensor, dependent_scores: Tensor, values: Tensor, pairs: Pairs | Tensor
) -> None:
    if (
        dependent_scores.shape != values.shape
        or (isinstance(pairs, Tensor) and pairs.dtype != torch.bool)
        or tuple(pairs.shape) != (*head_scores.shape[:2], values.shape[1])
        or head_scores.shape[::2] != values.shape[::2]
    ):
        raise ValueError(
            f"heads {tuple(head_scores.shape)}, dependents {tuple(dependent_scores.shape)},"
            f" values {tuple(values.shape)} and allowed {tuple(pairs.shape)}"
            f" {pairs.dtype if isinstance(pairs, Tensor) else ''} do not fit"
        )


def _allowed(pairs: Pairs | Tensor, sequences: slice, heads: slice) -> Tensor:
    return pairs[sequences, heads] if isinstance(pairs, Tensor) else pairs.mask(sequences, heads)


def _blocks(head_scores: Tensor, values: Tensor) -> Iterator[tuple[slice, slice]]:
    """Slices of sequences and heads whose temporaries, [m, j, I, D] each, fit in a block.

    The heads of a sequence are split only if that sequence alone exceeds a block.
    """
    sequences, heads = head_scores.shape[:2]
    most = _ELEMENTS if values.device.type == "cpu" else _ELEMENTS_ON_DEVICE
    by_head = max(1, most // max(1, math.prod(values.shape[1:])))
    by_sequence = max(1, by_head // max(1, heads))
    for start in range(0, sequences, by_sequence):
        for head in range(0, heads, by_head):
            yield slice(start, start + by_sequence), slice(head, head + by_head)


def _weights(
    head_scores: Tensor, dependent_scores: Tensor, allowed: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """q and the unnormalised weights exp(c tanh(s / c) - c) = exp(-2 c q), both [m, J, I, D].

    tanh(x) = 1 - 2 q with q = sigmoid(-2 x), which is several times cheaper than tanh, as exp2 is
    than exp, and is exact for arguments of any size.
    """
    pairs = head_scores[:, :, None, :] + dependent_scores[:, None, :, :]
    q = pairs.mul_(-2.0 / scale).sigmoid_()
    weights = (q * (-2.0 * scale / math.log(2.0))).exp2_()
    return q, weights.mul_(allowed[..., None])


class _Attention(torch.autograd.Function):
    """Blockwise forward and hand-written backward: no tensor of all pairs outlives its block."""

    @staticmethod
    def forward(
        ctx: Any,
        head_scores: Tensor,
        dependent_scores: Tensor,
        values: Tensor,
        pairs: Pairs | Tensor,
        scale: float,
    ) -> Tensor:
        context = torch.empty_like(head_scores)
        inverse = torch.empty_like(head_scores)  # 1 / sum of weights, 0 where nothing is allowed
        for block, heads in _blocks(head_scores, values):
            cut = block, heads
            allowed = _allowed(pairs, *cut)
            _, weights = _weights(head_scores[cut], dependent_scores[block], allowed, scale)
            total = weights.sum(2)
            inverse[cut] = torch.where(total > 0, total.reciprocal(), 0.0)
            context[cut] = weights.mul_(values[block][:, None]).sum(2) * inverse[cut]
        ctx.save_for_backward(head_scores, dependent_scores, values, context, inverse)
        ctx.rest = pairs, scale
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """With w = P_ji g_j: dh_i = sum_j w; ds_ji = w (h_i - s_j) 4 q (1 - q); du, dv its sums."""
        head_scores, dependent_scores, values, context, inverse = ctx.saved_tensors
        pairs, scale = ctx.rest
        scaled = gradient * inverse
        by_head, by_dependent = torch.empty_like(head_scores), torch.zeros_like(values)
        by_value = torch.zeros_like(values)
        for block, heads in _blocks(head_scores, values):
            cut = block, heads
            allowed = _allowed(pairs, *cut)
            q, flow = _weights(head_scores[cut], dependent_scores[block], allowed, scale)
            flow.mul_(scaled[cut][:, :, None])
            by_value[block] += flow.sum(1)
            flow.mul_(values[block][:, None] - context[cut][:, :, None])
            flow.mul_(q).mul_(q.neg_().add_(1.0)).mul_(4.0)
            by_head[cut] = flow.sum(2)
            by_dependent[block] += flow.sum(1)
        return by_head, by_dependent, by_value, None, None


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
    attending = _attending(*inputs, pairs, scale)
    context = torch.empty_like(attending.head_scores)
    attention_forward(attending, context, None, None, None)
    return context


def side_of(tokens: Packed) -> tuple[Tensor, Tensor]:
    """Positions of rows, int64 [R], and the rows' `starts`."""
    return tokens.position.contiguous(), tokens.starts.contiguous()


def _attending(v: Tensor, u: Tensor, h: Tensor, pairs: PackedPairs, scale: float) -> Attending:
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
        attending = _attending(head_scores, dependent_scores, values, pairs, scale)
        # s, 1 / sum of weights, ds_j / dv_j
        shape = attending.head_scores.shape
        context, inverse, by_head = attending.values.new_empty(3, *shape).unbind()
        attention_forward(attending, context, inverse, by_head, None)
        ctx.save_for_backward(*attending[:-2], context, inverse, by_head)
        ctx.rest = attending[-2:]
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        *saved, context, inverse, by_head = ctx.saved_tensors
        attending = Attending(*saved, *ctx.rest)
        dv = torch.empty_like(attending.head_scores)
        du, dh = attending.values.new_empty(2, *attending.values.shape)
        results = context, inverse, by_head
        attention_backward(attending, results, gradient.contiguous(), None, dv, du, dh, None)
        return dv, du, dh, None, None

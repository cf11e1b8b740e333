"""The CPU kernels as functions of tensors, with checks of all their arguments.

A kernel reads and writes wherever it is pointed. So every pointer goes through `address`, which
checks type, device, shape and row stride, and row numbers held in other tensors are checked against
the number of rows.

A function writes its results into tensors that the caller allocates, and returns nothing. It has no
gradient: the autograd functions that call it call others for gradients. All tensors are on the CPU
and of one type, float32 or float64; with float32, inputs and results of matrix products may be
bfloat16.

Legend: R rows, D features; X heads, Y dependents, M sequences of attention; P parts of 64 rows, the
last one shorter.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rss_rl.ops.native import (
    OutOfRange,
    address,
    has_kernels_for,
    row_stride,
    run_kernel,
    threads_for,
)

ACTIVATIONS = {"none": 0, "relu": 1, "elu": 2}
"""Their numbers in the C++ source."""
_ORDERS = {"before": 0, "after": 1}
_PART = 64
"""Rows of a part, `kRows` in the C++ source."""
_STEPS = 2
"""Innermost-loop steps, see `threads_for`, that an element of a row-wise kernel is worth."""

_LARGEST_SCORE = 40.0
"""Processors without FMA round 2 u / c, which shifts E by up to 6e-8 |2 u / c| and a weight by
c / 2 times that: 2.4e-6."""
_LARGEST_EXPONENT = 40.0
"""Keeps E F below e^80, and E and F from underflowing to 0."""
_LARGEST_SCALE = 40.0
"""Weights are at least e^(-2c), which stays a normal number."""


def parts_of(rows: int) -> int:
    """P, the number of partial sums over rows."""
    return -(-rows // _PART)


def _kinds(number: Tensor, product: Tensor) -> tuple[torch.dtype, torch.dtype]:
    """Types of the tensors, and of inputs and results of matrix products."""
    kind, lower = number.dtype, product.dtype
    if not has_kernels_for(kind) or (
        lower != kind and (kind, lower) != (torch.float32, torch.bfloat16)
    ):
        raise ValueError(f"no kernel is for {kind} with products of {lower}")
    return kind, lower


def _name(name: str, lower: torch.dtype) -> str:
    return f"{name}_bfloat16" if lower == torch.bfloat16 else name


def _activation(name: str) -> int:
    number = ACTIVATIONS.get(name, -1)
    if number < 0:
        raise ValueError(f"no kernel computes the activation '{name}'")
    return number


def _starts(starts: Tensor, rows: int) -> ctypes.c_void_p:
    """Pointer to the starts [M + 1] of M sequences, which must rise from 0 to `rows`."""
    pointer, numbers = address(starts, torch.int64, (starts.numel(),)), starts.tolist()
    if not numbers or numbers[0] or numbers[-1] != rows or numbers != sorted(numbers):
        raise ValueError(f"starts of {len(numbers) - 1} sequences do not rise from 0 to {rows}")
    return pointer


def _fields(pointers: str, integers: str = "", numbers: str = "") -> tuple[tuple[str, Any], ...]:
    """Fields of a structure of the C++ source, by name; pointers are to tensors, or null."""
    kinds = (pointers, ctypes.c_void_p), (integers, ctypes.c_int64), (numbers, ctypes.c_double)
    return tuple((name, kind) for names, kind in kinds for name in names.split())


class _Attention(ctypes.Structure):
    """`Problem` of attention.cpp."""

    _fields_ = _fields(
        "head_scores dependent_scores bias values heads dependents head_starts dependent_starts",
        "sequences features stride bfloat16 order threads",
        "scale largest",
    )


class _Forward(ctypes.Structure):
    """`Forward` of attention.cpp."""

    _fields_ = _fields("context inverse by_head bfloat16_context")


class _Backward(ctypes.Structure):
    """`Backward` of attention.cpp."""

    _fields_ = _fields(
        "context inverse by_head gradient more_gradient more_value"
        " head_scores dependent_scores values head_sums"
    )


class Attending(NamedTuple):
    """What attention is computed of.

    head_scores       v [X, D], to which `bias` [D] is added
    dependent_scores  u [Y, D]. Both may be column slices of wider matrices, with equal row strides
    values            h [Y, D]
    heads, dependents             positions int64 [X] and [Y], ascending within a sequence
    head_starts, dependent_starts  first rows of the sequences, then the number of rows
    order             of a dependent to its head: before or after
    scale             c
    """

    head_scores: Tensor
    dependent_scores: Tensor
    bias: Tensor | None
    values: Tensor
    heads: Tensor
    head_starts: Tensor
    dependents: Tensor
    dependent_starts: Tensor
    order: str
    scale: float


def _attention(inputs: Attending, *more: Tensor) -> tuple[_Attention, int]:
    """The kernel's arguments, and the row stride that the scores and `more` tensors share.

    Raises:
        OutOfRange: the scale is too large.
    """
    kind, lower = _kinds(inputs.values, inputs.head_scores)
    (seen, features), looking = inputs.values.shape, inputs.heads.numel()
    sequences = inputs.head_starts.numel() - 1
    if inputs.order not in _ORDERS:
        raise ValueError(f"no kernel pairs tokens in the order '{inputs.order}'")
    if inputs.dependent_starts.numel() - 1 != sequences:
        raise ValueError(
            f"heads of {sequences} sequences, dependents of {inputs.dependent_starts.numel() - 1}"
        )
    if not inputs.scale <= _LARGEST_SCALE:
        raise OutOfRange
    stride = row_stride(inputs.head_scores, inputs.dependent_scores, *more)
    problem = _Attention(
        address(inputs.head_scores, lower, (looking, features), stride),
        address(inputs.dependent_scores, lower, (seen, features), stride),
        address(inputs.bias, kind, (features,)),
        address(inputs.values, kind, (seen, features)),
        address(inputs.heads, torch.int64, (looking,)),
        address(inputs.dependents, torch.int64, (seen,)),
        _starts(inputs.head_starts, looking),
        _starts(inputs.dependent_starts, seen),
        *(sequences, features, stride, lower == torch.bfloat16, _ORDERS[inputs.order]),
        threads_for(looking * features * seen // max(1, sequences)),
        inputs.scale,
        min(_LARGEST_SCORE, _LARGEST_EXPONENT * inputs.scale / 2.0),
    )
    return problem, stride


def attention_forward(
    inputs: Attending,
    context: Tensor,
    inverse: Tensor | None,
    by_head: Tensor | None,
    rounded: Tensor | None,
) -> None:
    """s [X, D]; what a backward pass needs; s again, in the type of the scores.

    Args:
        inverse, by_head: 1 / sum of weights and ds_j / dv_j, [X, D]; both or neither.

    Raises:
        OutOfRange: a score or the scale is too large, or not a number.
    """
    problem, _ = _attention(inputs)
    kind, lower, shape = inputs.values.dtype, inputs.head_scores.dtype, inputs.head_scores.shape
    if (inverse is None) != (by_head is None):
        raise ValueError("a backward pass needs both inverse and by_head")
    results = _Forward(
        *(address(tensor, kind, shape) for tensor in (context, inverse, by_head)),
        address(rounded, lower, shape),
    )
    if rounded is not None and lower == kind:
        raise ValueError("rounded is only for scores in bfloat16")
    run_kernel("attention_forward", kind, problem, results)


def attention_backward(
    inputs: Attending,
    results: Sequence[Tensor],
    gradient: Tensor,
    more_gradient: Tensor | None,
    by_head_score: Tensor,
    by_dependent_score: Tensor,
    by_value: Tensor,
    head_sums: Tensor | None,
    *,
    adds: bool = False,
) -> None:
    """Gradients of v, u and h, [X, D] and [Y, D]; that of v summed over each sequence, [M, D].

    Args:
        results: context, inverse and by_head of the forward pass, which must have been in range.
        gradient, more_gradient: their sum is the gradient of s; the second has the scores' type.
        by_head_score, by_dependent_score: with the row stride of v and u.
        adds: whether to add to `by_value` in place.
    """
    problem, stride = _attention(inputs, by_head_score, by_dependent_score)
    kind, lower = inputs.values.dtype, inputs.head_scores.dtype
    looking, seen = inputs.head_scores.shape, inputs.values.shape
    written = address(by_value, kind, seen)
    back = _Backward(
        *(address(tensor, kind, looking) for tensor in (*results, gradient)),
        address(more_gradient, lower, looking),
        written if adds else None,
        address(by_head_score, lower, looking, stride),
        address(by_dependent_score, lower, seen, stride),
        written,
        address(head_sums, kind, (problem.sequences, seen[1])),
    )
    run_kernel("attention_backward", kind, problem, back)


class _Pooling(ctypes.Structure):
    """`Problem` of pooling.cpp."""

    _fields_ = _fields("scores values starts", "sequences features threads")


def _pooling(scores: Tensor, values: Tensor, starts: Tensor) -> _Pooling:
    kind, _ = _kinds(scores, scores)
    (rows, features), sequences = scores.shape, starts.numel() - 1
    return _Pooling(
        *(address(tensor, kind, (rows, features)) for tensor in (scores, values)),
        _starts(starts, rows),
        *(sequences, features, threads_for(scores.numel())),
    )


def pooling_forward(
    scores: Tensor,
    values: Tensor,
    starts: Tensor,
    pooled: Tensor,
    largest: Tensor,
    inverse: Tensor,
) -> None:
    """Each sequence's mean, weighted by a softmax for each feature; largest score; 1 / sum.

    Args:
        scores, values: [R, D]. starts: int64 [M + 1].
        pooled, largest, inverse: [M, D].

    Raises:
        OutOfRange: a score is not finite.
    """
    problem = _pooling(scores, values, starts)
    shape = problem.sequences, problem.features
    results = (address(tensor, scores.dtype, shape) for tensor in (pooled, largest, inverse))
    run_kernel("pooling_forward", scores.dtype, problem, *results)


def pooling_backward(
    scores: Tensor,
    values: Tensor,
    starts: Tensor,
    results: Sequence[Tensor],
    gradient: Tensor,
    by_score: Tensor,
    by_value: Tensor,
) -> None:
    """Gradients of scores and values, [R, D].

    Args:
        scores, values, starts: those of the forward pass. results: its results.
        gradient: of `pooled`, [M, D].
    """
    problem = _pooling(scores, values, starts)
    shape = problem.sequences, problem.features
    run_kernel(
        "pooling_backward",
        scores.dtype,
        problem,
        *(address(tensor, scores.dtype, shape) for tensor in (*results, gradient)),
        *(address(tensor, scores.dtype, scores.shape) for tensor in (by_score, by_value)),
    )


def activate(
    product: Tensor, bias: Tensor | None, activation: str, out: Tensor, rounded: Tensor | None
) -> None:
    """activation(product + bias), [R, D]; `rounded` is the same in the product's type.

    Args:
        product: may be a column slice of a wider matrix. activation: none, relu or elu.
    """
    (kind, lower), (rows, features) = _kinds(out, product), out.shape
    stride = row_stride(product)
    run_kernel(
        _name("activate", lower),
        kind,
        address(product, lower, (rows, features), stride),
        address(bias, kind, (features,)),
        address(out, kind, (rows, features)),
        address(rounded, lower, (rows, features)),
        *(rows, features, stride, _activation(activation), threads_for(_STEPS * out.numel())),
    )


def activate_back(
    gradient: Tensor,
    more: Tensor | None,
    out: Tensor | None,
    activation: str,
    flow: Tensor,
    sums: Tensor,
) -> None:
    """Gradient of a product, [R, D] in its type, and its sums over each part of the rows, [P, D].

    Args:
        gradient: of `activate`'s result; `more`, of the product's type, is added. out: that result,
            if there is an activation. flow: may be a column slice of a wider matrix.
    """
    (kind, lower), (rows, features) = _kinds(gradient, flow), gradient.shape
    number, stride = _activation(activation), row_stride(flow)
    if number and out is None:
        raise ValueError(f"the gradient of {activation} needs its result")
    run_kernel(
        _name("activate_back", lower),
        kind,
        address(gradient, kind, (rows, features)),
        address(more, lower, (rows, features)),
        address(out, kind, (rows, features)),
        address(flow, lower, (rows, features), stride),
        address(sums, kind, (parts_of(rows), features)),
        *(rows, features, stride, number, threads_for(_STEPS * flow.numel())),
    )


class Fusion(NamedTuple):
    """What a fusion gate mixes: F h + (1 - F) s with F = sigmoid(a + c + b), all [R, D] but b [D].

    hidden h; context s
    gate, more  a and c, in the type of products. a may be a column slice of a wider matrix
    bias        b; None: 0
    """

    hidden: Tensor
    context: Tensor
    gate: Tensor
    more: Tensor
    bias: Tensor | None = None


class _Gate(ctypes.Structure):
    """`Gate` of gate.cpp."""

    _fields_ = _fields(
        "hidden context gate more bias", "rows features gate_stride side_stride threads"
    )


def _gate(fusion: Fusion, mixed: Tensor, *like_gate: Tensor) -> _Gate:
    hidden, context, gate, more, bias = fusion
    (kind, lower), (rows, features) = _kinds(hidden, gate), hidden.shape
    stride, side = row_stride(gate, *like_gate), row_stride(mixed)
    address(mixed, kind, (rows, features), side)
    return _Gate(
        *(address(tensor, kind, (rows, features)) for tensor in (hidden, context)),
        address(gate, lower, (rows, features), stride),
        address(more, lower, (rows, features)),
        address(bias, kind, (features,)),
        *(rows, features, stride, side, threads_for(_STEPS * hidden.numel())),
    )


def mix(fusion: Fusion, out: Tensor) -> None:
    """F h + (1 - F) s, [R, D]; `out` may be a column slice of a wider matrix."""
    problem, hidden = _gate(fusion, out), fusion.hidden
    target = address(out, hidden.dtype, hidden.shape, problem.side_stride)
    run_kernel(_name("mix", fusion.gate.dtype), hidden.dtype, problem, target)


def mix_back(
    fusion: Fusion,
    gradient: Tensor,
    by_hidden: Tensor,
    by_context: Tensor,
    by_gate: Tensor,
    sums: Tensor | None,
) -> None:
    """Gradients of h, s and the logit, [R, D]; the last summed over each part, [P, D].

    Args:
        gradient: of `mix`'s result; may be a column slice of a wider matrix. by_gate: of the row
            stride and type of `gate`.
    """
    problem = _gate(fusion, gradient, by_gate)
    kind, lower, shape = fusion.hidden.dtype, fusion.gate.dtype, fusion.hidden.shape
    run_kernel(
        _name("mix_back", lower),
        kind,
        problem,
        address(gradient, kind, shape, problem.side_stride),
        *(address(tensor, kind, shape) for tensor in (by_hidden, by_context)),
        address(by_gate, lower, shape, problem.gate_stride),
        address(sums, kind, (parts_of(shape[0]), shape[1])),
    )


_DROPOUTS = {
    (torch.float32, torch.float32): "dropout",
    (torch.float64, torch.float64): "dropout",
    (torch.float32, torch.bfloat16): "dropout_to_bfloat16",
    (torch.bfloat16, torch.float32): "dropout_of_bfloat16",
}
"""Kernels by the types of values and results."""


def dropout(values: Tensor, keys: Tensor, lowest: int, scale: float, out: Tensor) -> None:
    """Values [R, D], times `scale` where kept, else 0.

    Args:
        keys: int64 [R]. lowest: of the hash's lanes, signed 16 bits, that keep an element.
        out: of the type of `values`, or one is float32 and the other bfloat16.
    """
    name, (rows, features) = _DROPOUTS.get((values.dtype, out.dtype)), values.shape
    if name is None or not -(1 << 15) <= lowest < 1 << 15:
        raise ValueError(f"no dropout of {values.dtype} to {out.dtype} from lane {lowest} on")
    run_kernel(
        name,
        torch.float64 if out.dtype == torch.float64 else torch.float32,
        address(keys, torch.int64, (rows,)),
        *(address(tensor, tensor.dtype, (rows, features)) for tensor in (values, out)),
        *(rows, features, lowest, scale, threads_for(values.numel())),
    )

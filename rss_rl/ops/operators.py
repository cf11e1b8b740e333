"""The CPU kernels as torch operators, `torch.ops.rss_rl`, with checks of all their arguments.

A kernel reads and writes wherever it is pointed. So every pointer goes through `address`, which
checks type, device, shape and row stride, and row numbers held in other tensors are checked against
the number of rows.

An operator writes its results into tensors that the caller allocates, and returns nothing. It has
no gradient, and refuses tensors that require one: the autograd functions that call it call other
operators for gradients. All tensors are on the CPU and of one type, float32 or float64; with
float32, inputs and results of matrix products may be bfloat16.

Legend: R rows, D features; X heads, Y dependents, M sequences of attention; P parts of 64 rows, the
last one shorter.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

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
_ORDERS = {"before": 0, "after": 1, "others": 2}
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

registered: set[str] = set()
"""Full names of the operators."""
_LIBRARY: Any = torch.library.Library("rss_rl", "DEF")  # type: ignore[no-untyped-call]


def _operator(schema: str) -> Callable[[Callable[..., None]], Any]:
    """Register the decorated function, which checks its arguments, as the CPU implementation.

    `Library` adds 3 microseconds to a call, `torch.library.custom_op` would add 30; the smallest
    kernels take 4.
    """
    name = schema.partition("(")[0]

    def register(run: Callable[..., None]) -> Any:
        def checked(*given: Any) -> None:
            if torch.is_grad_enabled() and any(
                isinstance(tensor, Tensor) and tensor.requires_grad for tensor in given
            ):
                raise RuntimeError(f"rss_rl::{name} has no gradient; its callers define it")
            run(*given)

        registered.add(f"rss_rl::{name}")
        _LIBRARY.define(f"{schema} -> ()")
        _LIBRARY.impl(name, checked, "CPU")
        _LIBRARY.impl(name, torch.library.fallthrough_kernel, "Autograd")
        torch.library.register_fake(f"rss_rl::{name}", lambda *_: None, lib=_LIBRARY)
        return getattr(torch.ops.rss_rl, name).default

    return register


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
    first, found = address(starts, torch.int64, (starts.numel(),)), starts.tolist()
    if not found or found[0] or found[-1] != rows or found != sorted(found):
        raise ValueError(f"starts of {len(found) - 1} sequences do not rise from 0 to {rows}")
    return first


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


_ATTENTION = (
    "Tensor head_scores, Tensor dependent_scores, Tensor? bias, Tensor values, Tensor heads,"
    " Tensor head_starts, Tensor dependents, Tensor dependent_starts, str order, float scale"
)


def _attention(
    head_scores: Tensor,
    dependent_scores: Tensor,
    bias: Tensor | None,
    values: Tensor,
    heads: Tensor,
    head_starts: Tensor,
    dependents: Tensor,
    dependent_starts: Tensor,
    order: str,
    scale: float,
    *more: Tensor,
) -> tuple[_Attention, int]:
    """The kernel's arguments, and the row stride that the scores and `more` tensors share.

    Raises:
        OutOfRange: the scale is too large.
    """
    kind, lower = _kinds(values, head_scores)
    (seen, features), looking = values.shape, heads.numel()
    if order not in _ORDERS:
        raise ValueError(f"no kernel pairs tokens in the order '{order}'")
    if head_starts.numel() != dependent_starts.numel():
        raise ValueError(
            f"heads of {head_starts.numel() - 1} sequences, dependents of"
            f" {dependent_starts.numel() - 1}"
        )
    if not scale <= _LARGEST_SCALE:
        raise OutOfRange
    stride = row_stride(head_scores, dependent_scores, *more)
    sequences = head_starts.numel() - 1
    problem = _Attention(
        address(head_scores, lower, (looking, features), stride),
        address(dependent_scores, lower, (seen, features), stride),
        address(bias, kind, (features,)),
        address(values, kind, (seen, features)),
        address(heads, torch.int64, (looking,)),
        address(dependents, torch.int64, (seen,)),
        _starts(head_starts, looking),
        _starts(dependent_starts, seen),
        *(sequences, features, stride, lower == torch.bfloat16, _ORDERS[order]),
        threads_for(looking * features * seen // max(1, sequences)),
        scale,
        min(_LARGEST_SCORE, _LARGEST_EXPONENT * scale / 2.0),
    )
    return problem, stride


@_operator(
    f"attention_forward({_ATTENTION}, Tensor(a!) context, Tensor(b!)? inverse,"
    " Tensor(c!)? by_head, Tensor(d!)? rounded)"
)
def attention_forward(*given: Any) -> None:
    """s [X, D]; what a backward pass needs; s again, in the type of the scores.

    Args:
        head_scores: v [X, D], to which `bias` [D] is added; dependent_scores: u [Y, D]. They may be
            column slices of wider matrices, with equal row strides.
        values: h [Y, D]. heads, dependents: positions [X] and [Y], ascending within a sequence.
        head_starts, dependent_starts: first rows of the sequences, then the number of rows.
        order: before, after or others. scale: c.
        inverse, by_head: 1 / sum of weights and ds_j / dv_j, [X, D]; both or neither.

    Raises:
        OutOfRange: a score or the scale is too large, or not a number.
    """
    problem, _ = _attention(*given[:10])
    values, (context, inverse, by_head, rounded) = given[3], given[10:]
    kind, lower, shape = values.dtype, given[0].dtype, given[0].shape
    if (inverse is None) != (by_head is None):
        raise ValueError("a backward pass needs both inverse and by_head")
    made = _Forward(
        *(address(tensor, kind, shape) for tensor in (context, inverse, by_head)),
        address(rounded, lower, shape),
    )
    if rounded is not None and lower == kind:
        raise ValueError("rounded is only for scores in bfloat16")
    run_kernel("attention_forward", kind, problem, made)


@_operator(
    f"attention_backward({_ATTENTION}, Tensor context, Tensor inverse, Tensor by_head,"
    " Tensor gradient, Tensor? more_gradient, bool adds, Tensor(a!) by_head_score,"
    " Tensor(b!) by_dependent_score, Tensor(c!) by_value, Tensor(d!)? head_sums)"
)
def attention_backward(*given: Any) -> None:
    """Gradients of v, u and h, [X, D] and [Y, D]; that of v summed over each sequence, [M, D].

    Args:
        context, inverse, by_head: results of the forward pass, which must have been in range. The
            ten arguments before them are the forward pass's.
        gradient, more_gradient: their sum is the gradient of s; the second has the scores' type.
        adds: whether to add to `by_value` in place.
        by_head_score, by_dependent_score: with the row stride of v and u.
    """
    *made, gradient, more, adds, by_head_score, by_dependent_score, by_value, sums = given[10:]
    problem, stride = _attention(*given[:10], by_head_score, by_dependent_score)
    values, kind, lower = given[3], given[3].dtype, given[0].dtype
    looking, seen = given[0].shape, values.shape
    written = address(by_value, kind, seen)
    back = _Backward(
        *(address(tensor, kind, looking) for tensor in (*made, gradient)),
        address(more, lower, looking),
        written if adds else None,
        address(by_head_score, lower, looking, stride),
        address(by_dependent_score, lower, seen, stride),
        written,
        address(sums, kind, (problem.sequences, seen[1])),
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


_TOKENS = "Tensor scores, Tensor values, Tensor starts"


@_operator(f"pooling_forward({_TOKENS}, Tensor(a!) pooled, Tensor(b!) largest, Tensor(c!) inverse)")
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
    made = (address(tensor, scores.dtype, shape) for tensor in (pooled, largest, inverse))
    run_kernel("pooling_forward", scores.dtype, problem, *made)


@_operator(
    f"pooling_backward({_TOKENS}, Tensor pooled, Tensor largest, Tensor inverse, Tensor gradient,"
    " Tensor(a!) by_score, Tensor(b!) by_value)"
)
def pooling_backward(*given: Any) -> None:
    """Gradients of scores and values, [R, D].

    Args:
        pooled, largest, inverse: results of the forward pass; the three arguments before them are
            its own.
        gradient: of `pooled`, [M, D].
    """
    (scores, *_), of_sequences, of_tokens = given[:3], given[3:7], given[7:]
    problem = _pooling(*given[:3])
    shape = problem.sequences, problem.features
    run_kernel(
        "pooling_backward",
        scores.dtype,
        problem,
        *(address(tensor, scores.dtype, shape) for tensor in of_sequences),
        *(address(tensor, scores.dtype, scores.shape) for tensor in of_tokens),
    )


@_operator(
    "activate(Tensor product, Tensor? bias, str activation, Tensor(a!) out, Tensor(b!)? rounded)"
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


@_operator(
    "activate_back(Tensor gradient, Tensor? more, Tensor? out, str activation, Tensor(a!) flow,"
    " Tensor(b!) sums)"
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


class _Gate(ctypes.Structure):
    """`Gate` of gate.cpp."""

    _fields_ = _fields(
        "hidden context gate more bias", "rows features gate_stride side_stride threads"
    )


def _gate(
    hidden: Tensor,
    context: Tensor,
    gate: Tensor,
    more: Tensor,
    bias: Tensor | None,
    mixed: Tensor,
    *like_gate: Tensor,
) -> _Gate:
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


_SIDES = "Tensor hidden, Tensor context, Tensor gate, Tensor more, Tensor? bias"


@_operator(f"mix({_SIDES}, Tensor(a!) out)")
def mix(
    hidden: Tensor, context: Tensor, gate: Tensor, more: Tensor, bias: Tensor | None, out: Tensor
) -> None:
    """F h + (1 - F) s with F = sigmoid(a + c + b), all [R, D] but b [D].

    Args:
        gate, more: a and c, in the type of products. a and `out` may be column slices of wider
            matrices.
    """
    problem = _gate(hidden, context, gate, more, bias, out)
    made = address(out, hidden.dtype, hidden.shape, problem.side_stride)
    run_kernel(_name("mix", gate.dtype), hidden.dtype, problem, made)


@_operator(
    f"mix_back({_SIDES}, Tensor gradient, Tensor(a!) by_hidden, Tensor(b!) by_context,"
    " Tensor(c!) by_gate, Tensor(d!)? sums)"
)
def mix_back(
    hidden: Tensor,
    context: Tensor,
    gate: Tensor,
    more: Tensor,
    bias: Tensor | None,
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
    problem = _gate(hidden, context, gate, more, bias, gradient, by_gate)
    kind, lower, shape = hidden.dtype, gate.dtype, hidden.shape
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


@_operator("dropout(Tensor values, Tensor keys, int lowest, float scale, Tensor(a!) out)")
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

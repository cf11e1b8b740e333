"""Linear maps of the same values, with all that stands around their products in one pass each.

Legend: R rows (tokens of all sequences), I inputs, K maps of O outputs each.
"""

from __future__ import annotations

__all__ = ["gate_mix", "has_kernels", "linear_maps"]

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rss_rl.ops.attention import Backend
from rss_rl.ops.dropping import Drop
from rss_rl.ops.native import run_kernel, threads_for
from rss_rl.ops.tracing import recording

_ACTIVATIONS = {"none": 0, "relu": 1, "elu": 2}
_ROWS = 64
"""Whose gradients the kernel sums."""
_STEPS = 2
"""Of a kernel's innermost loop, a number is as long as so many."""
_KINDS = (torch.float32, torch.float64)


def has_kernels(values: Tensor, backend: Backend) -> bool:
    """`linear_maps` and `gate_mix` can be used in place of torch's own operations."""
    if backend != "compiled" or values.device.type != "cpu" or values.dtype not in _KINDS:
        return False
    lower = torch.is_autocast_enabled("cpu")
    return not recording() and (not lower or torch.get_autocast_dtype("cpu") == torch.bfloat16)


def linear_maps(
    values: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor | None],
    *,
    activation: str = "none",
    drop: Drop | None = None,
) -> tuple[Tensor, ...]:
    """activation(W_k drop(x) + b_k) for each k, [..., O].

    Under autocast to bfloat16 the products alone are in bfloat16, those of the gradients too.

    Args:
        values: x, [..., I], float32 or float64 on the CPU. weights: K x [O, I].
        biases: K x [O], or None for 0.
        activation: none, relu or elu. drop: of the rows of x.

    Raises:
        ValueError: tensors of another shape or type.
        KernelsError: this machine cannot compile them.
    """
    first = weights[0]
    _check([values, *weights, *(bias for bias in biases if bias is not None)])
    fit = all(weight.shape == first.shape for weight in weights)
    fit &= all(bias is None or bias.shape == first.shape[:1] for bias in biases)
    fit &= len(biases) == len(weights) and values.shape[-1:] == first.shape[1:]
    rows = values.shape[:-1].numel()
    if not fit or (drop is not None and drop.keys.numel() != rows):
        raise ValueError(
            f"values {tuple(values.shape)}, weights {[tuple(w.shape) for w in weights]} and biases"
            f" {[None if b is None else tuple(b.shape) for b in biases]} do not fit"
        )
    given = values, drop, activation, len(weights), *weights, *biases
    return _Maps.apply(*given)  # type: ignore[no-any-return, no-untyped-call]


def gate_mix(hidden: Tensor, context: Tensor, gate: Tensor, more: Tensor) -> Tensor:
    """F h + (1 - F) s with F = sigmoid(gate + more), all of one shape.

    Raises:
        ValueError: tensors of different shapes or types.
        KernelsError: this machine cannot compile it.
    """
    given = (hidden, context, gate, more)
    _check(given)
    if any(tensor.shape != hidden.shape for tensor in given):
        raise ValueError(f"one shape for all, got {[tuple(tensor.shape) for tensor in given]}")
    return _Mix.apply(*given)  # type: ignore[no-any-return, no-untyped-call]


def _check(given: Sequence[Tensor]) -> None:
    """A kernel reads whatever stands where it is told to."""
    kinds = {(tensor.dtype, tensor.device.type) for tensor in given}
    if len(kinds) > 1 or not kinds <= {(dtype, "cpu") for dtype in _KINDS}:
        raise ValueError(f"tensors of one type, float32 or float64, on the CPU: got {kinds}")


def _product_type(values: Tensor) -> torch.dtype:
    lower = torch.is_autocast_enabled("cpu") and values.dtype == torch.float32
    if lower and torch.get_autocast_dtype("cpu") == torch.bfloat16:
        return torch.bfloat16
    return values.dtype


def _suffix(lower: torch.dtype, way: str) -> str:
    return f"_{way}_bfloat16" if lower == torch.bfloat16 else ""


def _stacked(weights: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """K x [O, I] to [K O, I], copied and rounded at once."""
    if len(weights) == 1:
        return weights[0].to(dtype)
    first = weights[0]
    whole = first.new_empty(len(weights) * len(first), first.shape[1], dtype=dtype)
    for part, weight in zip(whole.chunk(len(weights)), weights, strict=True):
        part.copy_(weight)
    return whole


def _product(left: Tensor, right: Tensor) -> Tensor:
    """In the type of its factors, whatever autocast would make of them."""
    with torch.autocast("cpu", enabled=False):
        return left @ right


class _Maps(torch.autograd.Function):
    """One product for all maps, and two on the way back."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, drop: Drop | None, activation: str, count: int, *given: Tensor
    ) -> tuple[Tensor, ...]:
        weights, biases = given[:count], given[count:]
        flat, lower = values.reshape(-1, values.shape[-1]), _product_type(values)
        rows = flat.to(lower) if drop is None else drop.applied(flat, lower)
        weight = _stacked(weights, lower)  # [K O, I]
        shape = (*values.shape[:-1], len(weight) // count)
        outs = tuple(values.new_empty(shape) for _ in range(count))
        products = _product(rows, weight.T).chunk(count, 1)
        for part, bias, out in zip(products, biases, outs, strict=True):
            run_kernel(
                f"activate{_suffix(lower, 'of')}",
                values.dtype,
                *(part, None if bias is None else bias.contiguous(), out),
                *(len(rows), shape[-1], len(weight), _ACTIVATIONS[activation]),
                threads_for(_STEPS * out.numel()),
            )
        ctx.save_for_backward(rows, weight, *(outs if activation != "none" else ()))
        ctx.rest = drop, activation, shape
        return outs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight, *outs = ctx.saved_tensors
        drop, activation, shape = ctx.rest
        dtype, count = gradients[0].dtype, len(gradients)
        wanted = ctx.needs_input_grad[4 : 4 + count], ctx.needs_input_grad[4 + count :]
        flow = rows.new_empty(len(rows), len(weight))
        by_bias: list[Tensor | None] = []
        for k, part in enumerate(flow.chunk(count, 1)):
            sums = gradients[k].new_empty(-(-len(rows) // _ROWS), shape[-1])
            run_kernel(
                f"activate_back{_suffix(rows.dtype, 'to')}",
                dtype,
                *(gradients[k].contiguous(), outs[k] if outs else None, part, sums),
                *(len(rows), shape[-1], len(weight), _ACTIVATIONS[activation]),
                threads_for(_STEPS * part.numel()),
            )
            by_bias.append(sums.sum(0) if wanted[1][k] else None)
        by_weight: Sequence[Tensor | None] = (None,) * count
        if any(wanted[0]):
            by_weight = _product(flow.T, rows).to(dtype).chunk(count)
        by_values = None
        if ctx.needs_input_grad[0]:
            by_rows = _product(flow, weight)
            by_rows = by_rows.to(dtype) if drop is None else drop.applied(by_rows, dtype)
            by_values = by_rows.view(*shape[:-1], rows.shape[1])
        return by_values, None, None, None, *by_weight, *by_bias


class _Mix(torch.autograd.Function):
    """The gate is made again on the way back."""

    @staticmethod
    def forward(ctx: Any, *given: Tensor) -> Tensor:
        whole = [tensor.contiguous() for tensor in given]
        mixed, count = torch.empty_like(whole[0]), whole[0].numel()
        run_kernel("mix", mixed.dtype, *whole, mixed, count, threads_for(_STEPS * count))
        ctx.save_for_backward(*whole)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        whole, flow, count = ctx.saved_tensors, gradient.contiguous(), gradient.numel()
        outs = [torch.empty_like(flow) for _ in range(3)]
        threads = threads_for(_STEPS * count)
        run_kernel("mix_back", flow.dtype, *whole, flow, *outs, count, threads)
        by_hidden, by_context, by_gate = outs
        return by_hidden, by_context, by_gate, by_gate

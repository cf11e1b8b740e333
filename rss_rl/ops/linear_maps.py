"""Linear maps of the same values, with all that stands around their products in one pass each.

Legend: R rows (tokens of all sequences), I inputs, K maps of O outputs each.
"""

from __future__ import annotations

__all__ = ["gate_mix", "has_kernels", "linear_maps"]

import ctypes
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


def has_kernels(values: Tensor, backend: Backend) -> bool:
    """`linear_maps` and `gate_mix` can be used in place of torch's own operations."""
    kind = values.device.type == "cpu" and values.dtype in (torch.float32, torch.float64)
    return backend == "compiled" and kind and not recording()


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
        KernelsError: this machine cannot compile them.
    """
    given = values, drop, activation, len(weights), *weights, *biases
    return _Maps.apply(*given)  # type: ignore[no-any-return, no-untyped-call]


def gate_mix(hidden: Tensor, context: Tensor, gate: Tensor, more: Tensor) -> Tensor:
    """F h + (1 - F) s with F = sigmoid(gate + more), all of one shape.

    Raises:
        KernelsError: this machine cannot compile it.
    """
    return _Mix.apply(hidden, context, gate, more)  # type: ignore[no-any-return, no-untyped-call]


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


class _Maps(torch.autograd.Function):
    """One product for all maps, and two on the way back."""

    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        drop: Drop | None,
        activation: str,
        count: int,
        *given: Tensor,
    ) -> tuple[Tensor, ...]:
        weights, biases = given[:count], given[count:]
        flat, lower = values.reshape(-1, values.shape[-1]), _product_type(values)
        rows = flat.to(lower) if drop is None else drop.applied(flat, lower)
        weight = _stacked(weights, lower)  # [K O, I]
        shape = (*values.shape[:-1], len(weight) // count)
        outs = tuple(values.new_empty(shape) for _ in range(count))
        for part, bias, out in zip((rows @ weight.T).chunk(count, 1), biases, outs, strict=True):
            run_kernel(
                f"activate{_suffix(lower, 'of')}",
                values.dtype,
                *(part, None if bias is None else bias.contiguous(), out),
                *(len(rows), shape[-1], len(weight), _ACTIVATIONS[activation]),
                threads_for(_STEPS * out.numel()),
            )
        ctx.save_for_backward(rows, weight, *(outs if activation != "none" else ()))
        ctx.rest = drop, activation, [bias is not None for bias in biases], shape
        return outs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight, *outs = ctx.saved_tensors
        drop, activation, biased, shape = ctx.rest
        dtype, count = gradients[0].dtype, len(gradients)
        flow = rows.new_empty(len(rows), len(weight))
        by_bias = []
        for k, part in enumerate(flow.chunk(count, 1)):
            sums = gradients[k].new_empty(-(-len(rows) // _ROWS), shape[-1])
            run_kernel(
                f"activate_back{_suffix(rows.dtype, 'to')}",
                dtype,
                *(gradients[k].contiguous(), outs[k] if outs else None, part, sums),
                *(len(rows), shape[-1], len(weight), _ACTIVATIONS[activation]),
                threads_for(_STEPS * part.numel()),
            )
            by_bias.append(sums.sum(0) if biased[k] else None)
        by_weight = (flow.T @ rows).to(dtype).chunk(count)
        by_values = None
        if ctx.needs_input_grad[0]:
            by_rows = flow @ weight
            by_rows = by_rows.to(dtype) if drop is None else drop.applied(by_rows, dtype)
            by_values = by_rows.view(*shape[:-1], rows.shape[1])
        return by_values, None, None, None, *by_weight, *by_bias


class _Mixed(ctypes.Structure):
    """`Mixed` of the kernel's source."""

    _fields_ = (
        ("hidden", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("gate", ctypes.c_void_p),
        ("more", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("threads", ctypes.c_int64),
    )

    @classmethod
    def of(cls, given: Sequence[Tensor]) -> _Mixed:
        """Of contiguous tensors, which must outlive it."""
        count = given[0].numel()
        return cls(*(tensor.data_ptr() for tensor in given), count, threads_for(_STEPS * count))


class _Mix(torch.autograd.Function):
    """The gate is made again on the way back."""

    @staticmethod
    def forward(ctx: Any, *given: Tensor) -> Tensor:
        whole = [tensor.contiguous() for tensor in given]
        mixed = torch.empty_like(whole[0])
        run_kernel("mix", mixed.dtype, _Mixed.of(whole), mixed)
        ctx.save_for_backward(*whole)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        whole, flow = ctx.saved_tensors, gradient.contiguous()
        by_hidden, by_context, by_gate = (torch.empty_like(flow) for _ in range(3))
        run_kernel("mix_back", flow.dtype, _Mixed.of(whole), flow, by_hidden, by_context, by_gate)
        return by_hidden, by_context, by_gate, by_gate

"""Linear maps of the same values, with bias, activation and dropout fused into single passes.

Masks of dropout are hashes of a position's key.

Legend: R rows (tokens of all sequences), D features, I inputs, K maps of O outputs each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rss_rl.ops.attention import KernelBackend
from rss_rl.ops.matmul import empty_rows, matmul, weight_gradient
from rss_rl.ops.native import one_kind
from rss_rl.ops.operators import Fusion, activate, activate_back, dropout, mix, mix_back, parts_of

_SMALL = 1 << 15
"""Numbers up to which, without gradients, torch's own operations take less than a kernel's call."""
LEVELS = 1 << 16
"""Values of the 16-bit uniform number that decides on an element; a hash yields four."""


class Drop(NamedTuple):
    """Which elements of [R, D] are dropped.

    keys     int64 [R] in any shape
    dropped  at how many of the LEVELS an element is set to 0
    """

    keys: Tensor
    dropped: int

    @property
    def scale(self) -> float:
        """Factor of the kept elements."""
        return LEVELS / (LEVELS - self.dropped)

    def applied(self, values: Tensor, out: Tensor | None = None) -> Tensor:
        """Dropout of values [R, D] or of their gradient: kept elements are scaled up, others 0.

        Args:
            values: on the CPU; float64, float32, or bfloat16 with a float32 `out`.
            out: contiguous; for a result of another type: float32 to bfloat16 or back.

        Raises:
            ValueError: tensors of another shape or type, or a number of keys other than R.
        """
        dense = values.contiguous()
        result = torch.empty_like(dense) if out is None else out
        flat, keys = dense.flatten(0, -2), self.keys.contiguous().flatten()
        dropout(flat, keys, self.dropped - LEVELS // 2, self.scale, result.view(flat.shape))
        return result


def has_kernels(values: Tensor, backend: KernelBackend) -> bool:
    """Whether `linear_maps` and `gate_mix` can replace torch's own operations."""
    if backend != "compiled" or not one_kind([values]):
        return False
    lower = torch.is_autocast_enabled("cpu")
    return not lower or torch.get_autocast_dtype("cpu") == torch.bfloat16


def pays_kernels(values: Tensor, backend: KernelBackend) -> bool:
    """`has_kernels`, and whether they are faster than torch's own operations."""
    small = torch.is_inference_mode_enabled() and values.numel() < _SMALL
    return not small and has_kernels(values, backend)


def linear_maps(
    values: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor | None],
    *,
    activation: str = "none",
    drop: Drop | None = None,
) -> tuple[Tensor, ...]:
    """activation(W_k drop(x) + b_k) for each k, [..., O].

    Under autocast to bfloat16 only the products are in bfloat16, in the backward pass too.

    Args:
        values: x, [..., I], float32 or float64 on the CPU. weights: K x [O, I].
        biases: K x [O], or None for 0.
        activation: none, relu or elu. drop: dropout of the rows of x.

    Raises:
        ValueError: tensors of another shape or type.
        KernelsError: this machine cannot compile the kernels.
    """
    arguments = values, drop, activation, len(weights), *weights, *biases
    return _Maps.apply(*arguments)  # type: ignore[no-any-return, no-untyped-call]


def gate_mix(parts: Sequence[Fusion]) -> Tensor:
    """F h + (1 - F) s of each part, concatenated.

    Args:
        parts: K without a bias, of [R, D], or with more dimensions before D.

    Returns:
        [R, K D].

    Raises:
        ValueError: tensors of different shapes or types.
        KernelsError: this machine cannot compile the kernels.
    """
    tensors = [tensor for part in parts for tensor in part if tensor is not None]
    return _Mix.apply(*tensors)  # type: ignore[no-any-return, no-untyped-call]


def product_type(values: Tensor) -> torch.dtype:
    """Type of products with `values` under the current autocast."""
    lower = torch.is_autocast_enabled("cpu") and values.dtype == torch.float32
    if lower and torch.get_autocast_dtype("cpu") == torch.bfloat16:
        return torch.bfloat16
    return values.dtype


def stacked(weights: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """K x [O, I] to [K O, I], rounded."""
    if len(weights) == 1:
        return weights[0].to(dtype)
    return torch.cat([*weights]).to(dtype)


def factor(values: Tensor, drop: Drop | None, lower: torch.dtype) -> Tensor:
    """Values [R, I] after dropout, in the type of products."""
    if lower == values.dtype:
        return values if drop is None else drop.applied(values)
    room = empty_rows(len(values), values.shape[1], lower)
    return room.copy_(values) if drop is None else drop.applied(values, room)


def through_dropout(by_rows: Tensor, drop: Drop | None, dtype: torch.dtype) -> Tensor:
    """Gradient of values [R, I], of type `dtype`, from that of `factor`'s result; in its place."""
    if drop is None:
        return by_rows.to(dtype)
    same = by_rows.dtype == dtype
    return drop.applied(by_rows, by_rows if same else torch.empty_like(by_rows, dtype=dtype))


class _Maps(torch.autograd.Function):
    """One product for all maps, and two in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, drop: Drop | None, activation: str, count: int, *weights: Tensor
    ) -> tuple[Tensor, ...]:
        weights, biases = weights[:count], weights[count:]
        flat, lower = values.reshape(-1, values.shape[-1]), product_type(values)
        rows = factor(flat, drop, lower)
        weight = stacked(weights, lower)  # [K O, I]
        shape = (*values.shape[:-1], len(weight) // count)
        outs = tuple(values.new_empty(shape) for _ in range(count))
        products = matmul(rows, weight.T).chunk(count, 1)
        for part, bias, out in zip(products, biases, outs, strict=True):
            offset = None if bias is None else bias.contiguous()
            activate(part, offset, activation, out.view(part.shape), None)
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
        flow = empty_rows(len(rows), len(weight), rows.dtype)
        sums = gradients[0].new_empty(count, parts_of(len(rows)), shape[-1])
        for k, part in enumerate(flow.chunk(count, 1)):
            out = outs[k].view(part.shape) if outs else None
            slope = gradients[k].contiguous().view(part.shape)
            activate_back(slope, None, out, activation, part, sums[k])
        pairs = zip(sums.sum(1), wanted[1], strict=True)
        by_bias = [total if wants else None for total, wants in pairs]
        by_weight: Sequence[Tensor | None] = (None,) * count
        if any(wanted[0]):
            by_weight = weight_gradient(flow, rows, dtype).chunk(count)
        by_values = None
        if ctx.needs_input_grad[0]:
            by_values = through_dropout(matmul(flow, weight), drop, dtype)
            by_values = by_values.view(*shape[:-1], rows.shape[1])
        return by_values, None, None, None, *by_weight, *by_bias


class _Mix(torch.autograd.Function):
    """Recomputes the gates in the backward pass."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> Tensor:
        dense, parts = [tensor.contiguous() for tensor in tensors], len(tensors) // 4
        features, shape = tensors[0].shape[-1], tensors[0].shape[:-1]
        mixed = dense[0].new_empty(*shape, parts * features)
        for k, out in enumerate(mixed.flatten(0, -2).chunk(parts, 1)):
            mix(Fusion(*(side.view(out.shape) for side in dense[4 * k : 4 * k + 4])), out)
        ctx.save_for_backward(*dense)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        saved, parts = ctx.saved_tensors, len(ctx.saved_tensors) // 4
        gradients: list[Tensor] = []
        flows = gradient.contiguous().flatten(0, -2).chunk(parts, 1)
        for k, flow in enumerate(flows):
            fusion = Fusion(*(side.view(flow.shape) for side in saved[4 * k : 4 * k + 4]))
            by_hidden, by_context, by_gate = (torch.empty_like(fusion.hidden) for _ in range(3))
            mix_back(fusion, flow, by_hidden, by_context, by_gate, None)
            results = by_hidden, by_context, by_gate, by_gate
            gradients.extend(part.view(saved[0].shape) for part in results)
        return tuple(gradients)

"""Selection logits of RSS modules by the CPU kernels, without padding.

Legend: B sentences, N tokens of a padded one, T real tokens of all, E features, R selectors of D
hidden features each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from rss_rl.ops import operators
from rss_rl.ops.attention import KernelBackend
from rss_rl.ops.linear_maps import has_kernels, product_type
from rss_rl.ops.matmul import empty_rows, matmul, weight_gradient
from rss_rl.ops.native import one_kind


class Selector(NamedTuple):
    """The parameters of one RSS module.

    hidden  W [D, 3 E], for a token, its sentence's mean and their product, and b [D]
    last    w [1, D] and c [1]
    """

    hidden: Tensor
    hidden_bias: Tensor
    last: Tensor
    last_bias: Tensor


def has_selectors(tokens: Tensor, selectors: Sequence[Selector], backend: KernelBackend) -> bool:
    """Whether `selector_logits` can be used: kernels, one type, tokens that need no gradient."""
    given = (tensor for selector in selectors for tensor in selector)
    return has_kernels(tokens, backend) and not tokens.requires_grad and one_kind([tokens, *given])


def selector_logits(
    tokens: Tensor, valid: Tensor, selectors: Sequence[Selector], activation: str
) -> Tensor:
    """w . activation(W [x; mean; x * mean] + b) + c, with the mean of each sentence's tokens.

    Under autocast to bfloat16 only the products are in bfloat16, in the backward pass too.

    Args:
        tokens: x [B, N, E], float32 or float64 on the CPU, without gradient. valid: bool [B, N].
        selectors: of one shape. activation: relu or elu.

    Returns:
        [B, R, N], 0 on padding.

    Raises:
        ValueError: tensors of another shape or type, or tokens that require a gradient.
        KernelsError: this machine cannot compile the kernels.
    """
    given = [tensor for selector in selectors for tensor in selector]
    hidden, features = selectors[0].hidden_bias.numel(), tokens.shape[-1]
    shapes = [(hidden, 3 * features), (hidden,), (1, hidden), (1,)] * len(selectors)
    fits = tokens.ndim == 3 and valid.shape == tokens.shape[:2] and valid.dtype == torch.bool
    fits &= [tuple(tensor.shape) for tensor in given] == shapes and not tokens.requires_grad
    if not fits or not one_kind([tokens, *given]) or valid.device.type != "cpu":
        raise ValueError(
            f"tokens {tuple(tokens.shape)} {tokens.dtype}, valid {tuple(valid.shape)} {valid.dtype}"
            f" and selectors {[tuple(tensor.shape) for tensor in given]} do not fit"
        )
    starts = F.pad(valid.sum(1).cumsum(0), (1, 0))
    return _Logits.apply(tokens, valid, starts, int(starts[-1]), activation, *given)  # type: ignore[no-any-return, no-untyped-call]


_LONG = 64
"""Mean length of sentences from which weights for each of them pay: of 32 they cost as much."""


def _factors(hidden: Sequence[Tensor], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Weights of the rows [x, x * mean], [R D, 2 E], and of the means, [R D, E]."""
    features = hidden[0].shape[1] // 3
    shape = len(hidden), len(hidden[0]), 2, features
    of_rows = hidden[0].new_empty(shape, dtype=dtype)
    of_means = hidden[0].new_empty(len(hidden), len(hidden[0]), features, dtype=dtype)
    for number, weight in enumerate(hidden):
        parts = weight.reshape(-1, 3, features)
        of_rows[number].copy_(parts[:, ::2])
        of_means[number].copy_(parts[:, 1])
    return of_rows.flatten(0, 1).flatten(1), of_means.flatten(0, 1)


def _product(rows: Tensor, means: Tensor, weights: Tensor, sizes: list[int] | None) -> Tensor:
    """Product [T, R D] of [x, x * mean] and the weights [R D, 2 E].

    Args:
        rows: [x, x * mean] [T, 2 E], or x [T, E] of sentences with `sizes` tokens.
    """
    if sizes is None:
        return matmul(rows, weights.T)
    of_token, of_product = weights.chunk(2, 1)
    found = rows.new_empty(len(rows), len(weights))
    parts = zip(torch.split(rows, sizes), means, torch.split(found, sizes), strict=True)
    for part, mean, out in parts:
        torch.mm(part, (of_token + of_product * mean).T, out=out)
    return found


def _product_gradient(
    flow: Tensor, rows: Tensor, means: Tensor, sizes: list[int] | None
) -> tuple[Tensor, Tensor]:
    """Gradients [R D, E] of both halves of the weights of `_product`, from its own [T, R D]."""
    if sizes is None:
        return weight_gradient(flow, rows, flow.dtype).chunk(2, 1)  # type: ignore[return-value]
    by_token, by_product = flow.new_zeros(2, flow.shape[1], rows.shape[1])
    parts = zip(torch.split(flow, sizes), torch.split(rows, sizes), means, strict=True)
    for moved, part, mean in parts:
        gradient = matmul(moved.T, part)
        by_token += gradient
        by_product.addcmul_(gradient, mean)
    return by_token, by_product


class _Logits(torch.autograd.Function):
    """Recomputes the activations in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        tokens: Tensor,
        valid: Tensor,
        starts: Tensor,
        count: int,
        activation: str,
        *given: Tensor,
    ) -> Tensor:
        hidden, biases, last, last_biases = (given[k::4] for k in range(4))
        tokens, valid, lower = tokens.contiguous(), valid.contiguous(), product_type(tokens)
        features = tokens.shape[-1]
        # W [x; x * mean] = (W_x + W_p * mean) x: half the product, with weights for each sentence.
        # Not in bfloat16, whose products have a kernel for each number of rows.
        by_sentence = lower == tokens.dtype and count >= _LONG * len(tokens)
        rows = empty_rows(count, features if by_sentence else 2 * features, lower)
        means = tokens.new_empty(len(tokens), features)
        operators.selector_rows(tokens, valid, starts, rows, means)
        of_rows, of_means = _factors(hidden, lower)
        mean_rows = empty_rows(len(means), features, lower).copy_(means)
        ctx.sizes = starts.diff().tolist() if by_sentence else None
        made = (
            *(_product(rows, means, of_rows, ctx.sizes), matmul(mean_rows, of_means.T)),
            *(torch.cat(biases), torch.cat(last, 1), torch.cat(last_biases)),
        )
        logits = tokens.new_empty(len(tokens), len(hidden), tokens.shape[1])
        operators.selector_logits(valid, starts, *made, activation, logits)
        ctx.save_for_backward(valid, starts, rows, mean_rows, *made)
        ctx.activation = activation
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        valid, starts, rows, mean_rows, *made = ctx.saved_tensors
        dtype, sentences = gradient.dtype, len(mean_rows)
        selectors, columns = made[-1].numel(), made[0].shape[1]
        flow = empty_rows(len(rows), columns, rows.dtype)
        sums = gradient.new_empty(2, sentences, columns)  # gradients of the means' term and of w
        last_sums = gradient.new_empty(sentences, selectors)
        given = valid, starts, *made, ctx.activation, gradient.contiguous()
        operators.selector_back(*given, flow, sums[0], sums[1], last_sums)
        by_hidden: Sequence[Tensor | None] = (None,) * selectors
        if any(ctx.needs_input_grad[5::4]):
            mean_flow = empty_rows(sentences, columns, rows.dtype).copy_(sums[0])
            by_means = weight_gradient(mean_flow, mean_rows, dtype)
            by_token, by_product = _product_gradient(flow, rows, mean_rows, ctx.sizes)
            parts = by_token.to(dtype), by_means, by_product.to(dtype)
            by_hidden = torch.stack(parts, 1).flatten(1).chunk(selectors)
        by_bias, by_last = sums.sum(1)
        found = zip(
            *(by_hidden, by_bias.chunk(selectors), by_last[None].chunk(selectors, 1)),
            last_sums.sum(0).chunk(selectors),
            strict=True,
        )
        return *(None,) * 5, *(tensor for parts in found for tensor in parts)

"""Directional self-attention of packed rows: both directions in one autograd function.

    h = sigma(W_h drop(x) + b_h);   s = attention of v = W_2 h + b and u = W_1 h over h
    out = F h + (1 - F) s,   F = sigmoid(W_f1 h + W_f2 s + b_f)

Under autocast, kernels read matrix products in bfloat16 as they are and write the next product's
input in bfloat16: half the memory passes of separate layers.

Legend: R tokens of M sequences, E inputs, D features, K directions.
Source: Shen et al., DiSAN (AAAI 2018), section 4.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rss_rl.ops.attention import packed_attention, side_of
from rss_rl.ops.linear_maps import (
    Drop,
    factor,
    gate_mix,
    linear_maps,
    product_type,
    stacked,
    through_dropout,
)
from rss_rl.ops.matmul import empty_rows, matmul, weight_gradient
from rss_rl.ops.native import OutOfRange
from rss_rl.ops.operators import (
    Attending,
    Fusion,
    activate,
    activate_back,
    attention_backward,
    attention_forward,
    mix,
    mix_back,
    parts_of,
)
from rss_rl.ops.packing import Order, Packed, PackedPairs


class Weights(NamedTuple):
    """The parameters of one direction.

    hidden              W_h [D, E] and b_h [D]
    head, dependent     W_2 and W_1, [D, D]
    score_bias          b [D]
    gate, gate_context  W_f1 and W_f2, [D, D]
    gate_bias           b_f [D]
    """

    hidden: Tensor
    hidden_bias: Tensor
    head: Tensor
    dependent: Tensor
    score_bias: Tensor
    gate: Tensor
    gate_context: Tensor
    gate_bias: Tensor


class Direction(NamedTuple):
    """weights; which tokens a head attends to; the dropout of rows x, or None."""

    weights: Weights
    order: Order
    drop: Drop | None


def directional_attention(
    values: Tensor, directions: Sequence[Direction], tokens: Packed, activation: str, scale: float
) -> Tensor:
    """Concatenated outputs of the directions, [R, K D]; every token is head and dependent.

    Args:
        values: x, [R, E], float32 or float64 on the CPU.
        activation: sigma; none, relu or elu. scale: c of the attention logit.

    Raises:
        ValueError: tensors that do not fit.
        KernelsError: this machine cannot compile the kernels.
    """
    parameters = [tensor for direction in directions for tensor in direction.weights]
    rest = [(direction.order, direction.drop) for direction in directions]
    with suppress(OutOfRange):
        return _Directions.apply(values, tokens, rest, (activation, scale), *parameters)  # type: ignore[no-any-return, no-untyped-call]
    return gate_mix([_parts(values, each, tokens, activation, scale) for each in directions])


def _parts(
    values: Tensor, direction: Direction, tokens: Packed, activation: str, scale: float
) -> Fusion:
    """The fallback, layer by layer, for scores of any size."""
    layers = direction.weights
    (hidden,) = linear_maps(
        values, [layers.hidden], [layers.hidden_bias], activation=activation, drop=direction.drop
    )
    weights = layers.head, layers.dependent, layers.gate
    head, dependent, gate = linear_maps(
        hidden, weights, (layers.score_bias, None, layers.gate_bias)
    )
    pairs = PackedPairs(tokens, tokens, direction.order)
    context = packed_attention(head, dependent, hidden, pairs, scale)
    (more,) = linear_maps(context, [layers.gate_context], [None])
    return Fusion(hidden, context, gate, more)


class _Saved(NamedTuple):
    """What the backward pass of one direction needs.

    rows     drop(x) in the type of products, [R, E]; hidden_rows, context_rows: h and s likewise
    maps     W_2 h, W_1 h and W_f1 h, concatenated, [R, 3 D]; more: W_f2 s
    inverse, by_head  see `attention_forward`
    weights  in the type of products
    """

    rows: Tensor
    hidden: Tensor
    hidden_rows: Tensor
    maps: Tensor
    context: Tensor
    context_rows: Tensor
    inverse: Tensor
    by_head: Tensor
    more: Tensor
    hidden_weight: Tensor
    map_weights: Tensor
    context_weight: Tensor
    score_bias: Tensor
    gate_bias: Tensor

    def attention(self, sides: tuple[Tensor, Tensor], order: Order, scale: float) -> Attending:
        """Arguments of the attention kernels."""
        head, dependent, _ = self.maps.chunk(3, 1)
        rows = head, dependent, self.score_bias, self.hidden
        return Attending(*rows, *sides, *sides, order, scale)

    def gate(self) -> Fusion:
        """Arguments of the gate kernels."""
        logit = self.maps.chunk(3, 1)[2]
        return Fusion(self.hidden, self.context, logit, self.more, self.gate_bias)


def _forward(
    values: Tensor,
    direction: Direction,
    sides: tuple[Tensor, Tensor],
    activation: str,
    scale: float,
) -> _Saved:
    """One direction without its gate."""
    layers, order, drop = direction
    lower, (count, size) = product_type(values), (len(values), len(layers.hidden))
    once = lower == values.dtype  # products take what the kernels write
    hidden, context, inverse, by_head = values.new_empty(4, count, size)
    hidden_rows = hidden if once else empty_rows(count, size, lower)
    context_rows = context if once else empty_rows(count, size, lower)
    weights = (
        layers.hidden.to(lower),
        stacked((layers.head, layers.dependent, layers.gate), lower),
        layers.gate_context.to(lower),
    )
    rows = factor(values, drop, lower)
    bias, rounded = layers.hidden_bias.contiguous(), None if once else hidden_rows
    activate(matmul(rows, weights[0].T), bias, activation, hidden, rounded)
    maps = matmul(hidden_rows, weights[1].T)
    biases = layers.score_bias.contiguous(), layers.gate_bias.contiguous()
    results = context, context_rows, inverse, by_head
    saved = _Saved(rows, hidden, hidden_rows, maps, *results, maps, *weights, *biases)
    rounded = None if once else context_rows
    attention_forward(saved.attention(sides, order, scale), context, inverse, by_head, rounded)
    return saved._replace(more=matmul(context_rows, weights[2].T))


def _backward(
    saved: _Saved,
    gradient: Tensor,
    sides: tuple[Tensor, Tensor],
    order: Order,
    activation: str,
    scale: float,
) -> tuple[Tensor, list[Tensor]]:
    """Gradients of W_h drop(x) and of the parameters, given that of the output, [R, D].

    `gradient` may be a column slice of a wider matrix.
    """
    dtype, lower, (count, size) = gradient.dtype, saved.rows.dtype, saved.hidden.shape
    flow = empty_rows(count, 3 * size, lower)  # gradient of the maps
    by_gate = flow.chunk(3, 1)[2]
    lengths = [count, count, 2 * parts_of(count), len(sides[1]) - 1]
    room = saved.hidden.new_empty(sum(lengths), size)
    by_hidden, by_context, sums, head_sums = torch.split(room, lengths)
    sums = sums.view(2, -1, size)
    mix_back(saved.gate(), gradient, by_hidden, by_context, by_gate, sums[0])
    attention_backward(
        saved.attention(sides, order, scale),
        (saved.context, saved.inverse, saved.by_head),
        *(by_context, matmul(by_gate, saved.context_weight)),
        *(*flow.chunk(3, 1)[:2], by_hidden, head_sums),
        adds=True,
    )
    by_product = empty_rows(count, size, lower)
    more = matmul(flow, saved.map_weights)
    activate_back(by_hidden, more, saved.hidden, activation, by_product, sums[1])
    by_gate_bias, by_hidden_bias = sums.sum(1)
    by_head, by_dependent, by_gate_input = weight_gradient(flow, saved.hidden_rows, dtype).chunk(3)
    return by_product, [
        *(weight_gradient(by_product, saved.rows, dtype), by_hidden_bias),
        *(by_head, by_dependent, head_sums.sum(0), by_gate_input),
        *(weight_gradient(by_gate, saved.context_rows, dtype), by_gate_bias),
    ]


class _Directions(torch.autograd.Function):
    """Runs the directions one after the other."""

    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        tokens: Packed,
        rest: Sequence[tuple[Order, Drop | None]],
        settings: tuple[str, float],
        *parameters: Tensor,
    ) -> Tensor:
        flat, sides = values.contiguous(), side_of(tokens)
        count, size, width = len(rest), len(parameters[0]), len(Weights._fields)
        mixed = flat.new_empty(len(flat), count * size)
        every: list[Tensor] = []
        for k, out in enumerate(mixed.chunk(count, 1)):
            weights = Weights(*parameters[width * k : width * (k + 1)])
            saved = _forward(flat, Direction(weights, *rest[k]), sides, *settings)
            mix(saved.gate(), out)
            every.extend(saved)
        ctx.save_for_backward(*sides, *every)
        ctx.rest = rest, settings
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        sides, every = ctx.saved_tensors[:2], ctx.saved_tensors[2:]
        rest, settings = ctx.rest
        width, by_weights, by_values = len(_Saved._fields), [], None
        for k, flow in enumerate(gradient.contiguous().chunk(len(rest), 1)):
            saved = _Saved(*every[width * k : width * (k + 1)])
            order, drop = rest[k]
            by_product, by_parameters = _backward(saved, flow, sides, order, *settings)
            by_weights.extend(by_parameters)
            if ctx.needs_input_grad[0]:
                by_rows = matmul(by_product, saved.hidden_weight)
                by_input = through_dropout(by_rows, drop, gradient.dtype)
                by_values = by_input if by_values is None else by_values.add_(by_input)
        return by_values, None, None, None, *by_weights

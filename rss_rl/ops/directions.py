"""Directional self-attention of rows without padding, both directions together.

    h = sigma(W_h drop(x) + b_h);   s = attention of v = W_2 h + b and u = W_1 h over h
    out = F h + (1 - F) s,   F = sigmoid(W_f1 h + W_f2 s + b_f)

Legend: R tokens of M sequences, W words of these, E inputs, D features, K directions.
Source: Shen et al., DiSAN (AAAI 2018), section 4.1.
"""

from __future__ import annotations

__all__ = ["directional_attention"]

from collections.abc import Sequence
from contextlib import suppress

import torch
from torch import Tensor

from rss_rl.ops.attention import packed_attention
from rss_rl.ops.attention_pairs import PackedPairs
from rss_rl.ops.direction_weights import Direction
from rss_rl.ops.directions_native import native_directions
from rss_rl.ops.linear_maps import gate_mix, linear_maps
from rss_rl.ops.native import OutOfRange, one_kind
from rss_rl.ops.packing import Packed, Rows


def directional_attention(
    words: Rows, directions: Sequence[Direction], tokens: Packed, activation: str, scale: float
) -> Tensor:
    """Outputs of the directions side by side, [R, K D]; all tokens look and are seen.

    Args:
        words: x, with E features, float32 or float64 on the CPU.
        activation: sigma; none, relu or elu. scale: c of the attention logit.

    Raises:
        ValueError: tensors that do not fit.
        KernelsError: this machine cannot compile what computes it.
    """
    if torch.is_grad_enabled():
        values = words.spread(words.vectors)
        _check(values, directions, tokens)
        with suppress(OutOfRange):
            return native_directions(values, directions, tokens, activation, scale)
    return gate_mix([_parts(words, each, tokens, activation, scale) for each in directions])


def _parts(
    words: Rows, given: Direction, tokens: Packed, activation: str, scale: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same layer by layer, which keeps nothing for a way back and takes scores of any size."""
    layers = given.weights
    (hidden,) = linear_maps(
        words.vectors, [layers.hidden], [layers.hidden_bias], activation=activation, drop=given.drop
    )
    weights = layers.head, layers.dependent, layers.gate
    maps = linear_maps(hidden, weights, (layers.score_bias, None, layers.gate_bias))
    hidden, head, dependent, gate = (words.spread(each) for each in (hidden, *maps))
    pairs = PackedPairs(tokens, tokens, given.order)
    context = packed_attention(head, dependent, hidden, pairs, scale)
    (more,) = linear_maps(context, [layers.gate_context], [None])
    return hidden, context, gate, more


def _check(values: Tensor, directions: Sequence[Direction], tokens: Packed) -> None:
    """The kernels read whatever stands where they are told to."""
    size, inputs = directions[0].weights.hidden.shape
    square, vector = (size, size), (size,)
    shapes = [(size, inputs), vector, square, square, vector, square, square, vector]
    every = [values, *(tensor for each in directions for tensor in each.weights)]
    fits = values.shape == (len(tokens), inputs)
    fits &= all([t.shape for t in each.weights] == shapes for each in directions)
    fits &= all(each.drop is None or each.drop.keys.numel() == len(tokens) for each in directions)
    if not fits or not one_kind(every):
        found = [(tuple(tensor.shape), tensor.dtype) for tensor in every]
        raise ValueError(
            f"values, weights and biases {found} and what is dropped do not fit {len(tokens)}"
            " tokens on the CPU"
        )

"""What one direction of self-attention is made of; see `directions`.

Legend: E inputs, D features.
"""

from __future__ import annotations

__all__ = ["Direction", "Weights"]

from typing import NamedTuple

from torch import Tensor

from rss_rl.ops.attention_pairs import Order
from rss_rl.ops.dropping import Drop


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
    """weights; which tokens a head looks at; what is dropped of rows x, or None."""

    weights: Weights
    order: Order
    drop: Drop | None

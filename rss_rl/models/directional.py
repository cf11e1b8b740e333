"""One direction of feature-wise self-attention, with its fusion gate.

Legend: M sentences, N tokens, J selected heads, I selected dependents, E embedding size, D hidden;
R tokens of all sentences, X heads of them, U words of heads or dependents.
Source: Shen et al., DiSAN (AAAI 2018), section 4.1; ReSAN (IJCAI 2018), section 3.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rss_rl.models.layers import Dense, glorot_linear, linear
from rss_rl.ops.attention import KernelBackend, packed_attention
from rss_rl.ops.attention_pairs import Order, PackedPairs, Pairs
from rss_rl.ops.directions import Direction, Weights, directional_attention
from rss_rl.ops.gated import gated_attention
from rss_rl.ops.linear_maps import gate_mix, has_kernels
from rss_rl.ops.masking import Gathered, causal_means
from rss_rl.ops.operators import Fusion
from rss_rl.ops.packing import Packed, Rows, Shared


def fused(directions: Sequence[Fusion], backend: KernelBackend) -> Tensor:
    """Concatenated outputs of the directions, [..., 2D]."""
    if has_kernels(directions[0].hidden, backend):
        return gate_mix(directions)
    outputs = [torch.lerp(s, h, torch.sigmoid(gate + more)) for h, s, gate, more, _ in directions]
    return torch.cat(outputs, -1)


def typed_directions(directions: nn.ModuleList) -> Iterator[DirectionalAttention]:
    """The directions of a module, typed."""
    for direction in directions:
        assert isinstance(direction, DirectionalAttention)
        yield direction


def trained_together(
    directions: Sequence[DirectionalAttention], words: Rows, tokens: Packed
) -> Tensor:
    """Outputs of both directions in one step, [R, 2D]; every token is head and dependent."""
    given = [direction.for_rows(words.vectors) for direction in directions]
    settings = tokens, directions[0].project.activation, directions[0].scale
    dropouts = [direction.project.dropout for direction in directions]
    rows = words.spread(words.vectors)
    if not dropouts[0].drops or given[0].drop is not None:
        return directional_attention(rows, given, *settings)
    outputs = [
        directional_attention(dropout(rows), [each], *settings)
        for dropout, each in zip(dropouts, given, strict=True)
    ]
    return torch.cat(outputs, -1)


class AttentionSettings(NamedTuple):
    """Settings of both directions.

    activation, dropout  of Dense
    scale    c of the attention logit
    backend  what computes it
    """

    activation: str
    dropout: float
    scale: float
    backend: KernelBackend = "eager"


class DirectionalAttention(nn.Module):
    """One direction of ReSA: h = Dense(x), s by masked attention, u = F * h + (1 - F) * s.

    F = sigmoid(W_f1 h + b_1 + W_f2 s + b_2 + b_f).

    Args:
        inputs: E. hidden: D.
        forward: True = a head attends to the tokens before it, False = after it.
    """

    def __init__(
        self, inputs: int, hidden: int, settings: AttentionSettings, *, forward: bool
    ) -> None:
        super().__init__()
        backend = settings.backend
        self.project = Dense(inputs, hidden, settings.activation, settings.dropout, backend)
        self.dependent_score = glorot_linear(hidden, hidden, bias=False, backend=backend)
        self.head_score = glorot_linear(hidden, hidden, bias=False, backend=backend)
        self.score_bias = nn.Parameter(torch.zeros(hidden))
        self.gate_input = glorot_linear(hidden, hidden, backend=backend)
        self.gate_context = glorot_linear(hidden, hidden, backend=backend)
        self.gate_bias = nn.Parameter(torch.zeros(hidden))
        self._looks_back = forward
        self._order: Order = "before" if forward else "after"
        self.scale = settings.scale
        self._backend: KernelBackend = backend

    def trains_together(self, values: Tensor) -> bool:
        """Whether `trained_together` supports `values`."""
        return has_kernels(values, self._backend) and torch.is_grad_enabled()

    def attend(self, hidden: Tensor, heads: Shared, dependents: Shared) -> Tensor:
        """Context s of the heads only, [X, D], from the words' h, [W, D].

        A word is mapped once, and only if it occurs among the heads, or the dependents.
        """
        looking, seen = heads.of_used(hidden), dependents.of_used(hidden)
        v, u = heads.spread(self._by_head(looking)), dependents.spread(self.dependent_score(seen))
        h = dependents.spread(seen)
        pairs = PackedPairs(heads.tokens, dependents.tokens, self._order)
        return packed_attention(v, u, h, pairs, self.scale, self._backend)

    def _by_head(self, looking: Tensor) -> Tensor:
        """v = W2 h + b."""
        if has_kernels(looking, self._backend):
            return linear(looking, self.head_score.weight, self.score_bias, self._backend)
        return self.head_score(looking) + self.score_bias  # type: ignore[no-any-return]

    def for_rows(self, embedded: Tensor) -> Direction:
        """This direction's part of the arguments of `directional_attention`."""
        bias = self.gate_input.bias + self.gate_context.bias + self.gate_bias
        weights = Weights(
            *(self.project.linear.weight, self.project.linear.bias),
            *(self.head_score.weight, self.dependent_score.weight, self.score_bias),
            *(self.gate_input.weight, self.gate_context.weight, bias),
        )
        return Direction(weights, self._order, self.project.dropout.keyed(embedded))

    def gated_context(self, hidden: Tensor, valid: Tensor, gates: Tensor) -> Tensor:
        """Context of every token, [M, N, D], each dependent weighted by its gate [M, N]."""
        positions = torch.arange(valid.shape[1], device=valid.device).expand_as(valid)
        everything = Gathered(positions, valid)
        return gated_attention(
            self._by_head(hidden),
            self.dependent_score(hidden),
            hidden,
            Pairs(everything, everything, self._order),
            self.scale,
            gates,
            self._backend,
        )

    def padded_means(self, hidden: Tensor, valid: Tensor) -> Tensor:
        """Mean h of the tokens that the position mask allows, [M, N, D]."""
        return causal_means(hidden, valid, forward=self._looks_back)

    def means(self, hidden: Tensor, tokens: Packed) -> Tensor:
        """`padded_means` of packed tokens, [R, D]."""
        padded = tokens.padded(hidden), tokens.gathered().kept
        return tokens.unpadded(self.padded_means(*padded))

    def mix(self, hidden: Tensor, context: Tensor, gate: Tensor) -> Fusion:
        """The fusion gate of h and s, [..., D], given h's part of its logit."""
        layer, bias = self.gate_context, self.gate_bias
        if has_kernels(hidden, self._backend):
            more = linear(context, layer.weight, layer.bias + bias, self._backend)
        else:
            more = layer(context) + bias
        return Fusion(hidden, context, gate, more)

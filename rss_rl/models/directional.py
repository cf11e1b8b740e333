"""One direction of feature-wise self-attention: who attends, to whom, and the fusion gate.

Legend: M sentences, N tokens, J selected heads, I selected dependents, E embedding size, D hidden;
R tokens of all sentences, X heads of them, U words of heads or dependents.
Source: Shen et al., DiSAN (AAAI 2018), section 4.1; ReSAN (IJCAI 2018), section 3.2.
"""

from __future__ import annotations

__all__ = [
    "DirectionalAttention",
    "Fusion",
    "Maps",
    "all_tokens",
    "each_of",
    "fused",
    "whole_packed",
]

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rss_rl.models.layers import Dense, glorot_linear, linear
from rss_rl.ops.attention import KernelBackend, feature_wise_attention, packed_attention
from rss_rl.ops.attention_pairs import Order, PackedPairs, Pairs
from rss_rl.ops.bounded_attention import PAIR_SPEED, attention_within
from rss_rl.ops.direction_weights import Direction, Weights
from rss_rl.ops.directions import directional_attention
from rss_rl.ops.gated import gated_attention, gated_causal_means
from rss_rl.ops.linear_maps import gate_mix, has_kernels, linear_maps
from rss_rl.ops.masking import Gathered, causal_means, take
from rss_rl.ops.packing import Packed, Rows, Shared
from rss_rl.ops.tracing import recording


def all_tokens(valid: Tensor) -> Gathered:
    """Every valid token at its own position; valid ones first."""
    positions = torch.arange(valid.shape[1], device=valid.device).expand_as(valid)
    return Gathered(positions, valid, whole=True)


class Maps(NamedTuple):
    """What one direction makes of each token, whatever is selected; [B, N, D] each.

    hidden h; head v = W2 h + b; dependent u = W1 h; gate W_f1 h + b_1.
    """

    hidden: Tensor
    head: Tensor
    dependent: Tensor
    gate: Tensor


class Fusion(NamedTuple):
    """What a direction's fusion gate reads, of one shape [..., D]; u = F h + (1 - F) s.

    hidden h; context s; the logit of F is gate + more.
    """

    hidden: Tensor
    context: Tensor
    gate: Tensor
    more: Tensor


def fused(directions: Sequence[Fusion], backend: KernelBackend) -> Tensor:
    """Outputs of the directions side by side, [..., 2D]."""
    if has_kernels(directions[0].hidden, backend):
        return gate_mix(directions)
    outputs = [torch.lerp(s, h, torch.sigmoid(gate + more)) for h, s, gate, more in directions]
    return torch.cat(outputs, -1)


def each_of(directions: nn.ModuleList) -> Iterator[DirectionalAttention]:
    """The directions that a module has, with their type."""
    for direction in directions:
        assert isinstance(direction, DirectionalAttention)
        yield direction


def whole_packed(directions: Sequence[DirectionalAttention], words: Rows, tokens: Packed) -> Tensor:
    """Outputs of both directions where every row looks and is seen, [R, 2D]."""
    told = [direction.for_rows(words.vectors) for direction in directions]
    settings = directions[0].project.activation, directions[0].scale
    dropouts = [direction.project.dropout for direction in directions]
    if not dropouts[0].drops or told[0].drop is not None:
        return directional_attention(words, told, tokens, *settings)
    whole = words.spread(words.vectors)  # each row drops its own
    outputs = [
        directional_attention(Rows(dropout(whole)), [each], tokens, *settings)
        for dropout, each in zip(dropouts, told, strict=True)
    ]
    return torch.cat(outputs, -1)


class DirectionalAttention(nn.Module):
    """One direction of ReSA: h = Dense(x), s by masked attention, u = F * h + (1 - F) * s.

    F = sigmoid(W_f1 h + b_1 + W_f2 s + b_2 + b_f).

    Args:
        inputs: E. hidden: D.
        forward: True = a head looks at the tokens before it, False = after it.
        activation, dropout: of Dense. scale: c of the attention logit.
        backend: what computes it. error: of the attention, relative to the largest value
            of a feature, see `attention_within`; None = exact.
    """

    def __init__(
        self,
        inputs: int,
        hidden: int,
        *,
        forward: bool,
        activation: str,
        dropout: float,
        scale: float,
        backend: KernelBackend = "eager",
        error: float | None = None,
    ) -> None:
        super().__init__()
        self.project = Dense(inputs, hidden, activation, dropout, backend)
        self.dependent_score = glorot_linear(hidden, hidden, bias=False, backend=backend)
        self.head_score = glorot_linear(hidden, hidden, bias=False, backend=backend)
        self.score_bias = nn.Parameter(torch.zeros(hidden))
        self.gate_input = glorot_linear(hidden, hidden, backend=backend)
        self.gate_context = glorot_linear(hidden, hidden, backend=backend)
        self.gate_bias = nn.Parameter(torch.zeros(hidden))
        self._looks_back = forward
        self._order: Order = "before" if forward else "after"
        self.scale = scale
        self._backend: KernelBackend = backend
        self._error = error

    def packs(self, values: Tensor) -> bool:
        """`packed` can take what is computed of `values`."""
        return self._error is None and has_kernels(values, self._backend)

    def attend(self, hidden: Tensor, heads: Gathered, dependents: Gathered) -> Tensor:
        """Context s of the selected heads alone, [M, J, D], at the cost of J x I pairs."""
        shown = take(hidden, dependents)  # [M, I, D]
        head, dependent = self._scores(take(hidden, heads), shown)
        return self._attention(head, dependent, shown, heads, dependents)

    def attend_packed(
        self, looking: Tensor, shown: Tensor, heads: Shared, dependents: Shared
    ) -> Tensor:
        """`attend` of the words that heads and dependents use, [U, D] each; [X, D]."""
        head, dependent = self._scores(looking, shown)
        given = heads.spread(head), dependents.spread(dependent), dependents.spread(shown)
        pairs = PackedPairs(heads.tokens, dependents.tokens, self._order)
        return packed_attention(*given, pairs, self.scale)

    def _scores(self, looking: Tensor, shown: Tensor) -> tuple[Tensor, Tensor]:
        if has_kernels(looking, self._backend):
            head = linear(looking, self.head_score.weight, self.score_bias, self._backend)
        else:
            head = self.head_score(looking) + self.score_bias
        return head, self.dependent_score(shown)

    def whole(self, embedded: Tensor, heads: Gathered, dependents: Gathered) -> Fusion:
        """Of heads and dependents that stand where they stood, [M, N, E] to [M, N, D]."""
        maps = self.maps(embedded)
        context = self._attention(maps.head, maps.dependent, maps.hidden, heads, dependents)
        return self.mix(maps.hidden, context, maps.gate)

    def for_rows(self, embedded: Tensor) -> Direction:
        """What `directional_attention` is told of this direction."""
        bias = self.gate_input.bias + self.gate_context.bias + self.gate_bias
        weights = Weights(
            *(self.project.linear.weight, self.project.linear.bias),
            *(self.head_score.weight, self.dependent_score.weight, self.score_bias),
            *(self.gate_input.weight, self.gate_context.weight, bias),
        )
        return Direction(weights, self._order, self.project.dropout.keyed(embedded))

    def gated_context(self, hidden: Tensor, valid: Tensor, gates: Tensor) -> Tensor:
        """Context of every token, [M, N, D], each dependent weighted by its gate [M, N].

        Always exact: an error of both sums could be a large one of their quotient.
        """
        everything = all_tokens(valid)
        return gated_attention(
            self.head_score(hidden) + self.score_bias,
            self.dependent_score(hidden),
            hidden,
            Pairs(everything, everything, self._order),
            self.scale,
            gates,
            self._backend,
        )

    def gated_means(self, hidden: Tensor, gates: Tensor) -> Tensor:
        """Mean context with gates in place of a mask, [M, N, D]."""
        return gated_causal_means(hidden, gates, forward=self._looks_back)

    def maps(self, embedded: Tensor) -> Maps:
        """[B, N, E] to all that no selection changes."""
        hidden = self.project(embedded)
        if has_kernels(hidden, self._backend):
            layers = (self.head_score, self.dependent_score, self.gate_input)
            biases = self.score_bias, None, self.gate_input.bias
            return Maps(hidden, *linear_maps(hidden, [layer.weight for layer in layers], biases))
        return Maps(
            hidden,
            self.head_score(hidden) + self.score_bias,
            self.dependent_score(hidden),
            self.gate_input(hidden),
        )

    def shared_context(self, maps: Maps, heads: Gathered, dependents: Gathered) -> Tensor:
        """`attend` on maps that M / B selections share, [M, J, D]."""
        return self._attention(
            take(maps.head, heads),
            take(maps.dependent, dependents),
            take(maps.hidden, dependents),
            heads,
            dependents,
        )

    def _attention(
        self, head: Tensor, dependent: Tensor, shown: Tensor, heads: Gathered, dependents: Gathered
    ) -> Tensor:
        if self._error is not None and not recording():
            speed = PAIR_SPEED[self._backend]
            context = attention_within(
                self._error,
                head,
                dependent,
                shown,
                heads,
                dependents,
                self._order,
                self.scale,
                speed,
            )
            if context is not None:
                return context
        pairs = Pairs(heads, dependents, self._order)
        return feature_wise_attention(head, dependent, shown, pairs, self.scale, self._backend)

    def unselected_context(self, hidden: Tensor, averaged: Tensor) -> Tensor:
        """Mean of the `averaged` tokens (bool [M, N]) that the position mask allows, [M, N, D]."""
        return causal_means(hidden, averaged, forward=self._looks_back)

    def fuse(self, hidden: Tensor, context: Tensor) -> Fusion:
        """The fusion gate of h and s, [..., D]."""
        return self.mix(hidden, context, self.gate_input(hidden))

    def mix(self, hidden: Tensor, context: Tensor, gate: Tensor) -> Fusion:
        """The fusion gate with h's part of it at hand, [..., D]."""
        layer, bias = self.gate_context, self.gate_bias
        if has_kernels(hidden, self._backend):
            more = linear(context, layer.weight, layer.bias + bias, self._backend)
        else:
            more = layer(context) + bias
        return Fusion(hidden, context, gate, more)

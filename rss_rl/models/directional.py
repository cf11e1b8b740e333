"""Directional feature-wise self-attention, and ReSA: between selected heads and dependents only.

Legend: M sentences, N tokens, K selections of each, E embedding size, D hidden; R tokens of all
sentences, W words of these, X heads or output tokens, U words of heads or dependents.
Source: Shen et al., DiSAN (AAAI 2018), section 4.1; ReSAN (IJCAI 2018), section 3.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rss_rl.models.dropout import packed_rows
from rss_rl.models.layers import Dense, glorot_linear, linear
from rss_rl.ops.attention import KernelBackend, packed_attention
from rss_rl.ops.directions import Direction, Weights, directional_attention
from rss_rl.ops.gated import gated_attention
from rss_rl.ops.linear_maps import gate_mix, has_kernels, pays_kernels
from rss_rl.ops.masking import Gathered, causal_means
from rss_rl.ops.operators import Fusion
from rss_rl.ops.packing import Order, Packed, PackedPairs, Pairs, Shared, WordRows
from rss_rl.types import DEPENDENT, HEAD, ROLES

TANH_SCALE = 5.0
"""c of the attention logit c tanh(s / c), as published."""


def fused(directions: Sequence[Fusion], backend: KernelBackend) -> Tensor:
    """Concatenated outputs of the directions, [..., 2D]."""
    if pays_kernels(directions[0].hidden, backend):
        return gate_mix(directions)
    outputs = [torch.lerp(s, h, torch.sigmoid(gate + more)) for h, s, gate, more, _ in directions]
    return torch.cat(outputs, -1)


def typed_directions(directions: nn.ModuleList) -> Iterator[DirectionalAttention]:
    """The directions of a module, typed."""
    for direction in directions:
        assert isinstance(direction, DirectionalAttention)
        yield direction


def trained_together(
    directions: Sequence[DirectionalAttention], words: WordRows, tokens: Packed
) -> Tensor:
    """Outputs of both directions in one step, [R, 2D]; every token is head and dependent."""
    each_direction = [direction.for_rows(words.vectors) for direction in directions]
    settings = tokens, directions[0].project.activation, TANH_SCALE
    dropouts = [direction.project.dropout for direction in directions]
    rows = words.spread(words.vectors)
    if not dropouts[0].drops or each_direction[0].drop is not None:
        return directional_attention(rows, each_direction, *settings)
    outputs = [
        directional_attention(dropout(rows), [each], *settings)
        for dropout, each in zip(dropouts, each_direction, strict=True)
    ]
    return torch.cat(outputs, -1)


class AttentionSettings(NamedTuple):
    """Settings of both directions.

    activation, dropout  of Dense
    backend  what computes it
    """

    activation: str
    dropout: float
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
        self._backend: KernelBackend = backend

    def trains_together(self, values: Tensor) -> bool:
        """Whether `trained_together` supports `values`."""
        return has_kernels(values, self._backend) and torch.is_grad_enabled()

    def attend(self, looking: Tensor, heads: Shared, seen: Tensor, dependents: Shared) -> Tensor:
        """Context s of the heads only, [X, D], from h of the words that occur among the heads.

        Args:
            looking, seen: h of the words that occur among the heads, and among the dependents.
        """
        v, u = heads.spread(self._by_head(looking)), dependents.spread(self.dependent_score(seen))
        h = dependents.spread(seen)
        pairs = PackedPairs(heads.tokens, dependents.tokens, self._order)
        return packed_attention(v, u, h, pairs, TANH_SCALE, self._backend)

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
            TANH_SCALE,
            gates,
            self._backend,
        )

    def padded_means(self, hidden: Tensor, valid: Tensor) -> Tensor:
        """Mean h of the tokens that the position mask allows, [M, N, D]."""
        return causal_means(hidden, valid, forward=self._looks_back)

    def means(self, hidden: Tensor, tokens: Packed) -> Tensor:
        """`padded_means` of packed tokens, [R, D]."""
        padded = tokens.padded(hidden), tokens.gathered.kept
        return tokens.unpadded(self.padded_means(*padded))

    def mix(self, hidden: Tensor, context: Tensor, gate: Tensor) -> Fusion:
        """The fusion gate of h and s, [..., D], given h's part of its logit."""
        layer, bias = self.gate_context, self.gate_bias
        if has_kernels(hidden, self._backend):
            more = linear(context, layer.weight, layer.bias + bias, self._backend)
        else:
            more = layer(context) + bias
        return Fusion(hidden, context, gate, more)


class Contextual(NamedTuple):
    """Tokens with their context, under K selections of the same rows.

    vectors   [X, 2D]
    tokens    the tokens, of K M sequences
    others    their flat index in [K, R], int64 [X], and for all other cells the vectors of all
              tokens as if unselected, [R, 2D]; None: there are no others, or they are left out
    """

    vectors: Tensor
    tokens: Packed
    others: tuple[Tensor, Tensor] | None = None


class ReSA(nn.Module):
    """Two untied directions over one selection, outputs concatenated to 2D.

    With every token selected it is DiSA, and a `TokenEncoder`.

    Args:
        keep_unselected: True = every real token is output, an unselected one with the mean of all
            that its position mask allows as context (the released code; the paper's text averages
            dependents); False = only the selected heads are (its 'w/o unselected heads', the
            faithful form).
        inputs, hidden, settings: see `DirectionalAttention`.
    """

    def __init__(
        self,
        inputs: int,
        hidden: int,
        settings: AttentionSettings,
        *,
        keep_unselected: bool = False,
    ) -> None:
        super().__init__()
        self.directions = nn.ModuleList(
            DirectionalAttention(inputs, hidden, settings, forward=forward)
            for forward in (True, False)
        )
        self.output_size = 2 * hidden
        self._backend: KernelBackend = settings.backend
        self.keeps_unselected = keep_unselected

    def forward(self, embedded: Tensor, valid: Tensor) -> Tensor:
        """See `TokenEncoder`; every token is selected."""
        tokens = Packed.of([valid])
        roles = torch.ones(1, len(tokens), ROLES, dtype=torch.bool, device=valid.device)
        with packed_rows(tokens):
            vectors = self.packed(WordRows(embedded[valid]), tokens, roles).vectors
        padded = vectors.new_zeros(*valid.shape, self.output_size)
        return padded.index_put((tokens.sequence, tokens.position), vectors)

    def packed(self, words: WordRows, tokens: Packed, roles: Tensor) -> Contextual:
        """Context-aware representations of the output tokens.

        Args:
            words: with E features. roles: the selections, bool [K, R, 2].
        """
        directions, once = list(typed_directions(self.directions)), len(roles) == 1
        if once and directions[0].trains_together(words.vectors) and bool(roles.all()):
            return Contextual(trained_together(directions, words, tokens), tokens)
        heads = dependents = Shared.of(tokens, roles[..., HEAD], words)
        reads = has_kernels(words.vectors, self._backend) and not torch.is_grad_enabled()
        if not (reads and torch.equal(roles[..., HEAD], roles[..., DEPENDENT])):
            dependents = Shared.of(tokens, roles[..., DEPENDENT], words)
        keeps_all = self.keeps_unselected and len(heads.cells) < roles[..., HEAD].numel()
        outputs, baselines = [], []
        for direction in directions:
            hidden = direction.project(words.vectors)  # [W, D]
            looking = heads.of_used(hidden)
            context = direction.attend(looking, heads, dependents.of_used(hidden), dependents)
            gate = direction.gate_input(hidden if keeps_all else looking)
            if keeps_all:
                every, logit = words.spread(hidden), words.spread(gate)  # [R, D]
                means = direction.means(every, tokens)
                if once:
                    context = means.index_copy(0, heads.cells, context)
                    outputs.append(direction.mix(every, context, logit))
                    continue
                baselines.append(direction.mix(every, means, logit))
                gate = heads.of_used(gate)
            mixed = heads.spread(looking), context, heads.spread(gate)
            outputs.append(direction.mix(*mixed))
        vectors = fused(outputs, self._backend)
        if keeps_all and once:
            return Contextual(vectors, tokens)
        others = (heads.cells, fused(baselines, self._backend)) if baselines else None
        return Contextual(vectors, heads.tokens, others)

    def gated(self, embedded: Tensor, valid: Tensor, gates: Tensor) -> Tensor:
        """Representations of all tokens, [M, N, 2D], with gates [M, 2, N] for a selection.

        If unselected tokens are kept, a head's context is g s + (1 - g) mean: one of the two for a
        gate of 0 or 1.
        """
        outputs = []
        for direction in typed_directions(self.directions):
            hidden = direction.project(embedded)  # [M, N, D]
            context = direction.gated_context(hidden, valid, gates[:, DEPENDENT])
            if self.keeps_unselected:
                mean = direction.padded_means(hidden, valid)
                context = torch.lerp(mean, context, gates[:, HEAD, :, None])
            outputs.append(direction.mix(hidden, context, direction.gate_input(hidden)))
        return fused(outputs, self._backend)

"""ReSA, reinforced self-attention: soft attention between selected heads and dependents only.

Legend: M sentences, N tokens, K selections of each, E embedding size, D hidden; R tokens of all
sentences, W words of these, X output tokens.
Source: Shen et al., Reinforced Self-Attention Network (IJCAI 2018), section 3.2; the directional
form is that of DiSAN (Shen et al., AAAI 2018).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from rss_rl.models.directional import (
    AttentionSettings,
    DirectionalAttention,
    fused,
    trained_together,
    typed_directions,
)
from rss_rl.models.dropout import packed_rows
from rss_rl.ops.attention import KernelBackend
from rss_rl.ops.packing import Packed, Rows, Shared
from rss_rl.types import DEPENDENT, HEAD, ROLES


class Contextual(NamedTuple):
    """Tokens with their context, under K selections of the same rows.

    vectors   [X, 2D]
    tokens    the tokens, of K M sequences
    cells     their flat index in [K, R], int64 [X]
    baseline  vectors of all tokens as if unselected, [R, 2D], for the other cells of [K, R]; None:
              the others are left out
    """

    vectors: Tensor
    tokens: Packed
    cells: Tensor
    baseline: Tensor | None = None


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
            vectors = self.packed(Rows(embedded[valid]), tokens, roles).vectors
        padded = vectors.new_zeros(*valid.shape, self.output_size)
        return padded.index_put((tokens.sequence, tokens.position), vectors)

    def packed(self, words: Rows, tokens: Packed, roles: Tensor) -> Contextual:
        """Context-aware representations of the output tokens.

        Args:
            words: with E features. roles: the selections, bool [K, R, 2].
        """
        directions, once = list(typed_directions(self.directions)), len(roles) == 1
        if once and bool(roles.all()) and directions[0].trains_together(words.vectors):
            rows = torch.arange(len(tokens), device=roles.device)
            return Contextual(trained_together(directions, words, tokens), tokens, rows)
        heads, dependents = (
            Shared.of(tokens, roles[..., role], words) for role in (HEAD, DEPENDENT)
        )
        whole = self.keeps_unselected and len(heads.cells) < roles[..., HEAD].numel()
        outputs, baselines = [], []
        for direction in directions:
            hidden = direction.project(words.vectors)  # [W, D]
            context = direction.attend(hidden, heads, dependents)
            gate = direction.gate_input(hidden if whole else heads.of_used(hidden))
            if whole:
                every, logit = words.spread(hidden), words.spread(gate)  # [R, D]
                means = direction.means(every, tokens)
                if once:
                    context = means.index_copy(0, heads.cells, context)
                    outputs.append(direction.mix(every, context, logit))
                    continue
                baselines.append(direction.mix(every, means, logit))
                gate = heads.of_used(gate)
            own = heads.spread(heads.of_used(hidden)), context, heads.spread(gate)
            outputs.append(direction.mix(*own))
        vectors = fused(outputs, self._backend)
        if whole and once:
            return Contextual(vectors, tokens, torch.arange(len(tokens), device=roles.device))
        baseline = fused(baselines, self._backend) if baselines else None
        return Contextual(vectors, heads.tokens, heads.cells, baseline)

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

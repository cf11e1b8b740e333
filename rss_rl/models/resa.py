"""ReSA, reinforced self-attention: soft attention between selected heads and dependents only.

Legend: B sentences, M selections of them (B, or K * B sample-major), N tokens, J selected heads,
I selected dependents, E embedding size, D hidden; R tokens of all sentences, W words of these, X
heads of them.
Source: Shen et al., Reinforced Self-Attention Network (IJCAI 2018), section 3.2; the directional
form is that of DiSAN (Shen et al., AAAI 2018).
"""

from __future__ import annotations

__all__ = ["Many", "ManyPacked", "ReSA"]

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from rss_rl.models.directional import DirectionalAttention, Fusion, each_of, fused, whole_packed
from rss_rl.ops.attention import KernelBackend
from rss_rl.ops.masking import Gathered, kept_indices, scatter, take
from rss_rl.ops.packing import Packed, Rows, Shared
from rss_rl.types import DEPENDENT, HEAD

Context = Literal["real", "dependents"]


class Many(NamedTuple):
    """Outputs under several selections of each sentence; T selected heads of all of them.

    selection, head, token  of each, int64 [T]: the row in [M, J], the column there, and in [M, N]
    fused                   their outputs, [T, 2D]: packed, as rows have few and unequal numbers
    kept                    bool [M, J]
    baseline                outputs of all tokens as if unselected, [B, N, 2D]; None where those
                            are left out
    """

    selection: Tensor
    head: Tensor
    token: Tensor
    fused: Tensor
    kept: Tensor
    baseline: Tensor | None


class ManyPacked(NamedTuple):
    """Outputs under K selections of the same rows.

    cells     of the selected heads in the K R, int64 [X]
    heads     which tokens they are, of K M sequences
    fused     their outputs, [X, 2D]
    baseline  outputs of all tokens as if unselected, [R, 2D]; None where those are left out
    """

    cells: Tensor
    heads: Packed
    fused: Tensor
    baseline: Tensor | None


class ReSA(nn.Module):
    """Two untied directions over one selection, outputs concatenated to 2D.

    Args:
        keep_unselected: True = every real token comes out, an unselected one with mean context (the
            paper's ReSA); False = only the selected heads come out (its 'w/o unselected heads',
            the faithful form).
        unselected_context: which tokens the context of an unselected head averages: all `real` ones
            that its position mask allows (the released program) or only the selected `dependents`
            (the paper's text).
        backend, error: see `DirectionalAttention`.
    """

    def __init__(
        self,
        inputs: int,
        hidden: int,
        *,
        activation: str,
        dropout: float,
        scale: float,
        keep_unselected: bool,
        unselected_context: Context,
        backend: KernelBackend = "eager",
        error: float | None = None,
    ) -> None:
        super().__init__()
        self.directions = nn.ModuleList(
            DirectionalAttention(
                inputs,
                hidden,
                forward=forward,
                activation=activation,
                dropout=dropout,
                scale=scale,
                backend=backend,
                error=error,
            )
            for forward in (True, False)
        )
        self._backend: KernelBackend = backend
        self._keep_unselected = keep_unselected
        self._unselected_context = unselected_context

    def forward(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> tuple[Tensor, Tensor]:
        """Context-aware representations of the tokens that stay.

        Args:
            embedded: [M, N, E]. valid: bool [M, N]. selection: bool [M, 2, N].

        Returns:
            [M, L, 2D] and bool [M, L], True = a token stands here; L is N where unselected tokens
            stay and the largest number of selected heads where they do not.
        """
        heads = kept_indices(selection[:, HEAD] & valid)
        dependents = kept_indices(selection[:, DEPENDENT] & valid)
        if self._keep_unselected:
            averaged = valid
            if self._unselected_context == "dependents":
                averaged = valid & selection[:, DEPENDENT]
            outputs = [
                self._whole(direction, embedded, valid, averaged, heads, dependents)
                for direction in each_of(self.directions)
            ]
            return fused(outputs, self._backend), valid
        outputs = [
            self._heads_only(direction, embedded, heads, dependents)
            for direction in each_of(self.directions)
        ]
        return fused(outputs, self._backend), heads.kept

    def packs(self, values: Tensor) -> bool:
        """`packed` can take what is computed of `values`."""
        return all(direction.packs(values) for direction in each_of(self.directions))

    def packed(self, words: Rows, tokens: Packed, roles: Tensor) -> tuple[Tensor, Packed]:
        """`forward` of rows.

        Args:
            words: with E features. roles: the selection, bool [R, 2].

        Returns:
            [R, 2D] or, where the heads alone come out, [X, 2D]; and which tokens these are.
        """
        if bool(roles.all()):
            return whole_packed(list(each_of(self.directions)), words, tokens), tokens
        heads, dependents = self._chosen(words, tokens, roles[None])
        outputs = []
        for direction in each_of(self.directions):
            hidden = direction.project(words.vectors)  # [W, D]
            looking, shown = (hidden.index_select(0, side.used) for side in (heads, dependents))
            context = direction.attend_packed(looking, shown, heads, dependents)
            if self._keep_unselected:
                gate, hidden = (words.spread(t) for t in (direction.gate_input(hidden), hidden))
                averaged = None if self._unselected_context == "real" else roles[:, DEPENDENT]
                means = self._means(direction, hidden, tokens, averaged)
                context = means.index_copy(0, heads.cells, context)
            else:
                gate, hidden = (heads.spread(t) for t in (direction.gate_input(looking), looking))
            outputs.append(direction.mix(hidden, context, gate))
        return fused(outputs, self._backend), tokens if self._keep_unselected else heads.tokens

    def many_packed(self, words: Rows, tokens: Packed, roles: Tensor) -> ManyPacked:
        """`packed` under K selections, bool [K, R, 2], with the common part once."""
        heads, dependents = self._chosen(words, tokens, roles)
        owns, baselines = [], []
        for direction in each_of(self.directions):
            hidden = direction.project(words.vectors)  # [W, D]
            looking, shown = (hidden.index_select(0, side.used) for side in (heads, dependents))
            context = direction.attend_packed(looking, shown, heads, dependents)
            gate = direction.gate_input(hidden if self._keep_unselected else looking)
            if self._keep_unselected:
                every = words.spread(hidden)  # [R, D]
                mean = self._means(direction, every, tokens, None)
                baselines.append(direction.mix(every, mean, words.spread(gate)))
                gate = gate.index_select(0, heads.used)
            owns.append(direction.mix(heads.spread(looking), context, heads.spread(gate)))
        baseline = fused(baselines, self._backend) if baselines else None
        return ManyPacked(heads.cells, heads.tokens, fused(owns, self._backend), baseline)

    @staticmethod
    def _chosen(words: Rows, tokens: Packed, roles: Tensor) -> tuple[Shared, Shared]:
        """Heads and dependents."""
        heads, dependents = (
            Shared.of(tokens, roles[..., role], words) for role in (HEAD, DEPENDENT)
        )
        return heads, dependents

    @staticmethod
    def _means(
        direction: DirectionalAttention, hidden: Tensor, tokens: Packed, averaged: Tensor | None
    ) -> Tensor:
        """Contexts of unselected rows [R, D], over rows `averaged`, bool [R], or all."""
        if averaged is None:
            averaged = torch.ones_like(tokens.position, dtype=torch.bool)
        padded = tokens.padded(hidden), tokens.padded(averaged[:, None])[..., 0]
        return tokens.unpadded(direction.unselected_context(*padded))

    def gated(self, embedded: Tensor, valid: Tensor, gates: Tensor) -> Tensor:
        """Representations of all tokens, [M, N, 2D], with gates [M, 2, N] for a selection.

        Where unselected tokens stay, a head's context is g s + (1 - g) mean: with a gate of 0 or 1
        one of the two.
        """
        outputs = []
        for direction in each_of(self.directions):
            hidden = direction.project(embedded)  # [M, N, D]
            context = direction.gated_context(hidden, valid, gates[:, DEPENDENT])
            if self._keep_unselected:
                averaged = valid.to(gates.dtype)
                if self._unselected_context == "dependents":
                    averaged = gates[:, DEPENDENT]
                mean = direction.gated_means(hidden, averaged)
                context = torch.lerp(mean, context, gates[:, HEAD, :, None])
            outputs.append(direction.fuse(hidden, context))
        return fused(outputs, self._backend)

    @property
    def shares(self) -> bool:
        """`many` saves work: what it computes once depends on no selection."""
        return not self._keep_unselected or self._unselected_context == "real"

    def many(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Many:
        """What `forward` computes for K selections of each sentence, with the common part once.

        Args:
            embedded: [B, N, E]. valid: bool [B, N]. selection: bool [K * B, 2, N], sample-major.
        """
        sentences, tokens = valid.shape
        shown = valid.repeat(len(selection) // max(1, sentences), 1)
        heads = kept_indices(selection[:, HEAD] & shown)
        dependents = kept_indices(selection[:, DEPENDENT] & shown)
        rows, columns = heads.kept.nonzero(as_tuple=True)  # [T]
        places = heads.index[rows, columns]
        common = rows % max(1, sentences) * tokens + places  # of the B * N tokens
        owns, baselines = [], []
        for direction in each_of(self.directions):
            maps = direction.maps(embedded)
            context = direction.shared_context(maps, heads, dependents)[rows, columns]  # [T, D]
            hidden, gate = maps.hidden.flatten(0, 1)[common], maps.gate.flatten(0, 1)[common]
            owns.append(direction.mix(hidden, context, gate))
            if self._keep_unselected:
                mean = direction.unselected_context(maps.hidden, valid)
                baselines.append(direction.mix(maps.hidden, mean, maps.gate))
        baseline = fused(baselines, self._backend) if baselines else None
        return Many(rows, columns, places, fused(owns, self._backend), heads.kept, baseline)

    @staticmethod
    def _whole(
        direction: DirectionalAttention,
        embedded: Tensor,
        valid: Tensor,
        averaged: Tensor,
        heads: Gathered,
        dependents: Gathered,
    ) -> Fusion:
        all_heads = heads.whole and torch.equal(heads.kept, valid)
        if all_heads and dependents.whole:
            return direction.whole(embedded, heads, dependents)
        hidden = direction.project(embedded)  # [M, N, D]
        context = direction.attend(hidden, heads, dependents)
        if not all_heads:  # else nobody reads the context of the others
            context = scatter(direction.unselected_context(hidden, averaged), heads, context)
        return direction.fuse(hidden, context)

    @staticmethod
    def _heads_only(
        direction: DirectionalAttention, embedded: Tensor, heads: Gathered, dependents: Gathered
    ) -> Fusion:
        hidden = direction.project(embedded)
        return direction.fuse(take(hidden, heads), direction.attend(hidden, heads, dependents))

"""Sentence encoders: embedded tokens and a selection to one vector a sentence.

Legend: M sentences, N tokens, E embedding size, D hidden.
"""

from __future__ import annotations

__all__ = ["Encoder", "MeanEncoder", "ReSANEncoder", "Source2TokenEncoder"]

from typing import Protocol

from torch import Tensor, nn

from rss_rl.models.layers import Source2Token
from rss_rl.models.resa import ReSA
from rss_rl.ops.masking import masked_mean


class Encoder(Protocol):
    """A module that makes sentence vectors.

    `reads_unselected` False promises that unselected tokens are irrelevant, so that the caller may
    (and does) remove them before the encoder sees the sentence.
    """

    output_size: int
    reads_unselected: bool

    def __call__(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
        """[M, N, E], bool [M, N], bool [M, 2, N] to [M, output_size]."""


class ReSANEncoder(nn.Module):
    """ReSA, then source2token over the tokens that come out of it."""

    def __init__(
        self, resa: ReSA, pool: Source2Token, *, hidden: int, reads_unselected: bool
    ) -> None:
        super().__init__()
        self.resa, self.pool = resa, pool
        self.output_size = 2 * hidden
        self.reads_unselected = reads_unselected

    def forward(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
        """See `Encoder`."""
        context, kept = self.resa(embedded, valid, selection)
        return self.pool(context, kept)  # type: ignore[no-any-return]


class Source2TokenEncoder(nn.Module):
    """source2token over the selected embeddings: the paper's 'w/o soft self-attention'."""

    reads_unselected = False

    def __init__(self, pool: Source2Token, size: int) -> None:
        super().__init__()
        self.pool = pool
        self.output_size = size

    def forward(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
        """See `Encoder`."""
        return self.pool(embedded, valid & selection.any(1))  # type: ignore[no-any-return]


class MeanEncoder(nn.Module):
    """Mean of the selected embeddings: the paper's 'w/o all attentions'."""

    reads_unselected = False

    def __init__(self, size: int) -> None:
        super().__init__()
        self.output_size = size

    def forward(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
        """See `Encoder`."""
        return masked_mean(embedded, valid & selection.any(1))

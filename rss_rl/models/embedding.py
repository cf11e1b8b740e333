"""Word vectors: those of training words are fine-tuned, the rest stay fixed."""

from __future__ import annotations

__all__ = ["WordEmbedding"]

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rss_rl.ops.packing import Rows
from rss_rl.types import Array

_FEW = 0.75
"""Distinct words are looked up once each where they are at most so large a share of the tokens."""


class WordEmbedding(nn.Module):
    """Rows below `trainable` are parameters; the rest is a buffer that no snapshot carries.

    Args:
        vectors: float32 [V, E], row 0 is padding.
        trainable: number of leading rows that are fine-tuned.

    `gradient_by_row` set to True gives the parameters sparse gradients, of the rows of a batch.
    """

    fixed: Tensor

    def __init__(self, vectors: Array, trainable: int) -> None:
        super().__init__()
        if vectors.ndim != 2 or not 1 <= trainable <= len(vectors):
            raise ValueError(f"{trainable} trainable rows of vectors {vectors.shape}")
        table = torch.tensor(vectors, dtype=torch.float32)
        self.trainable = nn.Parameter(table[:trainable].clone())
        self.register_buffer("fixed", table[trainable:].clone(), persistent=False)
        self.gradient_by_row = False

    @property
    def size(self) -> int:
        """Embedding size E."""
        return self.trainable.shape[1]

    def forward(self, tokens: Tensor) -> Tensor:
        """int64 [...] to [..., E]; padding (id 0) gives zeros."""
        rows = self.trainable.shape[0]
        known = tokens < rows
        tuned = F.embedding(
            torch.where(known, tokens, 0),
            self.trainable,
            padding_idx=0,
            sparse=self.gradient_by_row,
        )
        if not len(self.fixed):
            return tuned
        fixed = F.embedding((tokens - rows).clamp_min(0), self.fixed)
        return torch.where(known[..., None], tuned, fixed)

    def rows(self, tokens: Tensor, *, once: bool) -> Rows:
        """Of tokens int64 [R]; `once` looks up each word once where that saves work.

        It does not where gradients are wanted, for which kernels keep what they made of each row.
        """
        if once and not torch.is_grad_enabled():
            words, at = torch.unique(tokens, return_inverse=True)
            if len(words) <= _FEW * len(tokens):
                return Rows(self(words), at)
        return Rows(self(tokens))

"""Word vectors: those of training words are fine-tuned, the rest is fixed.

Legend: V rows that are fine-tuned, R of them, E embedding size.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rss_rl.ops.packing import WordRows
from rss_rl.types import FOLD_BIT, Array

_FEW = 0.75
"""Words are looked up once each if the distinct ones are at most this share of the tokens."""


def words_of(ids: Tensor) -> Tensor:
    """The words of ids int64 [...] that may hold the fold of their text, see `Batch.ids`."""
    return ids & ((1 << FOLD_BIT) - 1)


class RowAverage:
    """Makes a table the exponential moving average of another, updated lazily.

    The average follows the leader by f <- k f + (1 - k) l in every update. While a leader row is
    unchanged, n updates amount to f <- K f + (1 - K) l, K the product of their k. So a row is
    written before its leader changes, and otherwise computed from K = exp(clock - since), where
    `clock` is the sum of log k of all updates and `since` its value when the row was written.

    leader  float32 [V, E], the table that is averaged
    clock   float64 []
    since   float64 [V]
    """

    def __init__(self, leader: Tensor) -> None:
        self.leader = leader
        self.clock = torch.zeros((), dtype=torch.float64)
        self.since = torch.zeros(len(leader), dtype=torch.float64)

    def read(self, table: Tensor, rows: Tensor) -> Tensor:
        """The current average of rows int64 [...], last written in `table`: [..., E]."""
        return self._settled(F.embedding(rows, table), F.embedding(rows, self.leader), rows)

    def read_all(self, table: Tensor) -> Tensor:
        """The current average of every row of `table`, [V, E]."""
        return self._settled(table, self.leader, slice(None))

    def _settled(self, written: Tensor, led: Tensor, rows: Tensor | slice) -> Tensor:
        kept = torch.exp(self.clock - self.since[rows])  # exactly 1 where nothing was missed
        return torch.lerp(led, written, kept.to(written.dtype)[..., None])

    @torch.no_grad()
    def follow(self, table: Tensor, rows: Tensor, keep: float) -> None:
        """One update by k = `keep`, in which the leaders of rows int64 [R] are about to change."""
        table.index_copy_(0, rows, self.read(table, rows))
        self.since[rows] = self.clock
        self.clock = self.clock + math.log(keep)


class WordEmbedding(nn.Module):
    """Rows below `trainable` are parameters; the rest is a buffer that snapshots omit.

    Args:
        vectors: float32 [V, E], row 0 is padding.
        trainable: number of leading rows that are fine-tuned.

    Ids may hold the fold of their text, see `Batch.ids` and `hold_out`.
    `gradient_by_row` set to True gives the parameters sparse gradients, of the rows of a batch.
    Words that are met after training get the ids after the table, see `add_words`.
    With an `average` the stored rows may be stale; reads and `state_dict` give current ones.
    """

    fixed: Tensor
    held_out: Tensor | None
    average: RowAverage | None

    def __init__(self, vectors: Array, trainable: int) -> None:
        super().__init__()
        table = torch.tensor(vectors, dtype=torch.float32)
        self.trainable = nn.Parameter(table[:trainable].clone())
        self.register_buffer("fixed", table[trainable:].clone(), persistent=False)
        self._words = len(self.fixed)  # rows in use
        self._joined = False
        self.register_buffer("held_out", None)
        self.gradient_by_row = False
        self.average = None

    @property
    def size(self) -> int:
        """Embedding size E."""
        return self.trainable.shape[1]

    def add_words(self, vectors: Tensor) -> None:
        """Give words that are met after training the next ids, and these vectors, [n, E].

        The table grows by a quarter at a time, so that many calls take no longer than one.
        """
        first, end = self._words, self._words + len(vectors)
        if end > len(self.fixed):
            room = self.fixed.new_empty(end + end // 4, self.size)
            room[:first] = self.fixed[:first]
            self.fixed = room
        self.fixed[first:end] = vectors
        self._words = end

    def join(self) -> None:
        """Put all rows into one table that a single look-up reads; nothing is trained any more."""
        if not self._joined:
            rows = len(self.trainable)
            self.fixed = torch.cat([self.trainable.detach(), self.fixed])
            self.trainable.data = self.fixed[:rows]
            self._words, self._joined = len(self.fixed), True

    def hold_out(self, changes: Array) -> None:
        """Let the vectors of words depend on the fold of their text.

        Args:
            changes: float32 [F, V, c], of the last c features of each word in a text of each fold.
        """
        none = np.zeros_like(changes[:1])  # of texts without a fold
        table = torch.from_numpy(np.concatenate([none, changes]))
        self.register_buffer("held_out", table, persistent=False)

    def forward(self, tokens: Tensor, padding: int | None = 0) -> Tensor:
        """int64 [...] to [..., E]; padding gives zeros, without a gradient; None: there is none."""
        if self.held_out is None:
            return self._read(tokens, padding)
        folds, words = tokens >> FOLD_BIT, words_of(tokens)
        vectors = self._read(words, padding)
        size, features = self.held_out.shape[1:]
        changes = F.embedding((folds * size + words) * (folds > 0), self.held_out.flatten(0, 1))
        return vectors + F.pad(changes, (self.size - features, 0))

    def _read(self, tokens: Tensor, padding: int | None) -> Tensor:
        if self._joined:
            return F.embedding(tokens, self.fixed)
        rows = self.trainable.shape[0]
        if not len(self.fixed):
            return self._tuned(tokens, padding)
        known = tokens < rows
        fixed = F.embedding((tokens - rows).clamp_min(0), self.fixed)
        # Row 0 is padding; without, it has a gradient of zeros.
        return torch.where(known[..., None], self._tuned(tokens * known, padding), fixed)

    def _tuned(self, rows: Tensor, padding: int | None) -> Tensor:
        if self.average is not None:
            return self.average.read(self.trainable, rows)
        return F.embedding(rows, self.trainable, padding, sparse=self.gradient_by_row)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.average is not None:
            with torch.no_grad():
                destination[f"{prefix}trainable"] = self.average.read_all(self.trainable)

    def rows(self, tokens: Tensor, *, once: bool) -> WordRows:
        """Vectors of tokens int64 [R]; `once` looks up each word once where that saves work.

        With gradients it does not, as kernels then save results for each row.
        """
        if once and not torch.is_grad_enabled():
            words, at = torch.unique(tokens, return_inverse=True)
            if len(words) <= _FEW * len(tokens):
                return WordRows(self(words), at)
        return WordRows(self(tokens, None))

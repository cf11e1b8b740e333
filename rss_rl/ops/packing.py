"""Packed tokens: those of many sequences in consecutive rows, without padding; and which of them
attend to which, from positions: O(M n) numbers, not O(M n²).

Legend: M sequences, N tokens of a padded one, L of the longest, R rows, W distinct words of these
(or R), K selections, X chosen rows, U distinct words of these (or X), D features; J
heads and I dependents of a sequence.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from rss_rl.ops.masking import Gathered


@dataclass(frozen=True)
class Packed:
    """Which token each row is.

    sequence  int64 [R], ascending
    position  int64 [R], in the padded sequence; ascending within a sequence
    starts    int64 [M + 1], the first row of each sequence, and R
    """

    sequence: Tensor
    position: Tensor
    starts: Tensor

    @classmethod
    def of(cls, kept: Sequence[Tensor]) -> Packed:
        """The kept tokens of padded sequences, given as groups of masks, bool [m, n]."""
        cells = [group.nonzero(as_tuple=True) for group in kept]  # [r] each
        before = itertools.accumulate((len(group) for group in kept), initial=0)
        pairs = zip(cells, before, strict=False)
        sequence = joined([inside + m if m else inside for (inside, _), m in pairs])
        position = joined([position for _, position in cells])
        return cls(sequence, position, _starts(joined([group.sum(1) for group in kept])))

    def __len__(self) -> int:
        """R."""
        return len(self.position)

    def chosen(self, rows: Tensor, copy: Tensor | int = 0, copies: int = 1) -> Packed:
        """Only these rows, int64 [T], of one of the `copies` of all sequences each; ascending."""
        sequences = len(self.starts) - 1
        sequence = self.sequence[rows] + copy * sequences if copies > 1 else self.sequence[rows]
        counts = torch.bincount(sequence, minlength=copies * sequences)
        return Packed(sequence, self.position[rows], _starts(counts))

    def part(self, sequences: slice) -> Packed:
        """The tokens of some sequences."""
        starts = self.starts[sequences.start : sequences.stop + 1]
        bounds = self._bounds[sequences.start : sequences.stop + 1]
        rows = slice(bounds[0], bounds[-1])
        sequence = self.sequence[rows] - sequences.start
        return Packed(sequence, self.position[rows], starts - starts[0])

    def repeated(self, times: int) -> Packed:
        """`times` copies of all sequences, one copy after the other."""
        cells, count = torch.arange(times * len(self), device=self.position.device), len(self)
        return self.chosen(cells % max(1, count), cells // max(1, count), times)

    def padded(self, values: Tensor) -> Tensor:
        """[R, D] to [M, L, D], zeros after each sequence's last row."""
        shape = len(self.starts) - 1, self.longest, values.shape[-1]
        cells = values.new_zeros(shape).flatten(0, 1)
        return cells.index_copy(0, self._cells, values).view(shape)

    def unpadded(self, values: Tensor) -> Tensor:
        """[M, L, D] to [R, D]."""
        return values.flatten(0, 1).index_select(0, self._cells)

    @functools.cached_property
    def gathered(self) -> Gathered:
        """The tokens, padded to [M, L]."""
        index = self.position.new_full((len(self.starts) - 1, self.longest), -1)
        index.view(-1)[self._cells] = self.position
        return Gathered(index.clamp_min(0), index >= 0)

    @functools.cached_property
    def longest(self) -> int:
        """L."""
        return max((end - start for start, end in itertools.pairwise(self._bounds)), default=0)

    @functools.cached_property
    def _bounds(self) -> list[int]:
        """The `starts`, for which a device is waited for once."""
        bounds: list[int] = self.starts.tolist()
        return bounds

    @functools.cached_property
    def _cells(self) -> Tensor:
        """Flat index of each row in [M, L], int64 [R]."""
        rank = torch.arange(len(self), device=self.position.device) - self.starts[self.sequence]
        return self.sequence * self.longest + rank


class WordRows(NamedTuple):
    """Rows with repeated words: what depends only on the word is computed once.

    vectors  of the words, [W, D]
    at       the word of each row, int64 [R]; None: row r is word r
    """

    vectors: Tensor
    at: Tensor | None = None

    def spread(self, values: Tensor) -> Tensor:
        """Expands values of the words, [W, ...], to the rows, [R, ...]."""
        return values if self.at is None else values.index_select(0, self.at)


@dataclass(frozen=True)
class Shared:
    """Rows chosen by K selections, and the words they share.

    cells   flat index of each in [K, R], int64 [X], ascending
    used    words of the chosen rows, int64 [U], ascending
    at      index in `used` of each one's word, int64 [X]; None: each has a word of its own
    tokens  the chosen tokens, of K M sequences
    """

    cells: Tensor
    used: Tensor
    at: Tensor | None
    tokens: Packed

    @classmethod
    def of(cls, tokens: Packed, chosen: Tensor, words: WordRows) -> Shared:
        """From which rows of `tokens` are chosen, bool [K, R], and the rows' words."""
        copy, rows = chosen.nonzero(as_tuple=True)
        cells = copy * len(tokens) + rows if len(chosen) > 1 else rows
        picked = tokens.chosen(rows, copy, len(chosen))
        if len(chosen) == 1 and words.at is None:
            return cls(cells, cells, None, picked)
        each = rows if words.at is None else words.at[rows]
        somewhere = each.new_zeros(len(words.vectors), dtype=torch.bool).index_fill_(0, each, True)
        return cls(cells, somewhere.nonzero()[:, 0], (somewhere.cumsum(0) - 1)[each], picked)

    def of_used(self, values: Tensor) -> Tensor:
        """Reduces values of all words, [W, D], to the used ones, [U, D]."""
        return values if len(self.used) == len(values) else values.index_select(0, self.used)

    def spread(self, values: Tensor) -> Tensor:
        """Expands values of the used words, [U, D], to the chosen rows, [X, D]."""
        return values if self.at is None else values.index_select(0, self.at)


def joined(parts: Sequence[Tensor], axis: int = 0) -> Tensor:
    """The parts, concatenated if there are several."""
    return parts[0] if len(parts) == 1 else torch.cat([*parts], axis)


def _starts(counts: Tensor) -> Tensor:
    return F.pad(counts.cumsum(0), (1, 0))


def kept_cells(tokens: Gathered) -> tuple[Tensor, Packed]:
    """Flat indices of the kept tokens in [M, L], int64 [R], and the packed tokens."""
    cells = tokens.kept.flatten().nonzero()[:, 0]
    sequence = cells // max(1, tokens.kept.shape[1])
    position = tokens.index.flatten().index_select(0, cells)
    return cells, Packed(sequence, position, _starts(tokens.kept.sum(1)))


Order = Literal["before", "after"]
"""A head attends to dependents strictly before it, or strictly after it."""


@dataclass(frozen=True)
class Pairs:
    """The allowed pairs of gathered heads and dependents: both kept, in the given order.

    heads       positions [M, J], ascending among the kept ones
    dependents  positions [M, I], the same
    """

    heads: Gathered
    dependents: Gathered
    order: Order

    @property
    def shape(self) -> tuple[int, int, int]:
        """(M, J, I)."""
        return (*self.heads.kept.shape, self.dependents.kept.shape[1])

    def mask(self, sequences: slice, heads: slice) -> Tensor:
        """Bool [m, j, I] of some sequences and heads, True = allowed."""
        chosen = Gathered(self.heads.index[sequences, heads], self.heads.kept[sequences, heads])
        seen = Gathered(self.dependents.index[sequences], self.dependents.kept[sequences])
        return allowed_pairs(chosen, seen, self.order)


@dataclass(frozen=True)
class PackedPairs:
    """`Pairs` of packed heads and dependents."""

    heads: Packed
    dependents: Packed
    order: Order

    def padded(self) -> Pairs:
        """The same pairs, of padded sequences."""
        return Pairs(self.heads.gathered, self.dependents.gathered, self.order)


def allowed_pairs(heads: Gathered, dependents: Gathered, order: Order) -> Tensor:
    """Which dependents a head may attend to: kept ones before it, or after it.

    Args:
        heads: positions [M, J]. dependents: positions [M, I].

    Returns:
        bool [M, J, I].
    """
    position_j, position_i = heads.index[:, :, None], dependents.index[:, None, :]
    ordered = position_i < position_j if order == "before" else position_i > position_j
    return ordered & heads.kept[:, :, None] & dependents.kept[:, None, :]

"""Rows of different lengths, where sentences end, and tokens grouped by marks.

A sentence of a text ends at the last of consecutive tokens that consist only of '.', '!' and '?'.
Marks group the sentences of a passage, or the candidates of a question; -1 means no group.

Legend: B texts, M examples, N tokens, R groups of all examples together, L kept tokens of the
fullest group, C groups of the example with the most, D features.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

_STOPS = frozenset(".!?")


def ragged_rows(start: Tensor, count: Tensor) -> Tensor:
    """Indices start_r, start_r + 1, ..., start_r + count_r - 1 of all rows r, concatenated.

    Args:
        start: int64 [R]. count: int64 [R], 0 or more.

    Returns:
        int64 [sum of count].

    >>> ragged_rows(torch.tensor([5, 0, 2]), torch.tensor([2, 0, 3])).tolist()
    [5, 6, 2, 3, 4]
    """
    return torch.repeat_interleave(start, count) + ranks(count)


def add_rows(sums: Tensor, at: Tensor, values: Tensor) -> Tensor:
    """`sums` [M, D] with each row of `values` [R, D] added to row `at`, int64 [R].

    The same bits in every call. On a GPU, `index_add` adds the rows in any order.
    """
    if sums.is_cuda:
        return sums.index_put((at,), values, accumulate=True)
    return sums.index_add(0, at, values)


def ranks(count: Tensor, total: int | None = None) -> Tensor:
    """Numbers 0, 1, ..., count_r - 1 of all rows r, concatenated: int64 [sum of count].

    If their sum is known, `total` spares a device the wait for it.

    >>> ranks(torch.tensor([2, 0, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    before = torch.repeat_interleave(count.cumsum(0) - count, count, output_size=total)
    return torch.arange(len(before), device=count.device) - before


class SentenceEnds:
    """Finds where sentences end, by the words of token ids, which are numbered from 0."""

    def __init__(self, words: Iterable[str] = ()) -> None:
        self._count, self._stops = 0, list[int]()
        self.add_words(words)

    def add_words(self, words: Iterable[str]) -> None:
        """Add words, with the ids after the existing ones."""
        numbered = [*enumerate(words, self._count)]
        self._stops += [number for number, word in numbered if word and set(word) <= _STOPS]
        self._count += len(numbered)

    def __call__(self, tokens: Tensor) -> Tensor:
        """Whether a sentence ends with a token of int64 [B, N], bool [B, N]."""
        stopping = torch.isin(tokens, torch.tensor(self._stops, device=tokens.device))
        more = torch.cat([stopping[:, 1:], torch.zeros_like(stopping[:, :1])], 1)
        return stopping & ~more


def sentence_numbers(ends: Tensor) -> Tensor:
    """The number of the sentence that each token is in, int64 [..., N] from 0.

    Args:
        ends: bool [..., N], see `SentenceEnds`.
    """
    count = ends.long()
    return count.cumsum(-1) - count


@dataclass(frozen=True)
class Grouped:
    """The kept tokens of each group, moved to the front of a row of their own.

    example  int64 [R]      example of the group
    number   int64 [R]      the group's number in its example
    index    int64 [R, L]   of each kept token, its cell of the examples' M * N; 0 where none is
    kept     bool [R, L]    True = a kept token
    """

    example: Tensor
    number: Tensor
    index: Tensor
    kept: Tensor


def group_counts(marks: Tensor) -> Tensor:
    """Groups of each example, int64 [M]: its largest mark plus one, at least 1."""
    if not marks.shape[1]:
        return marks.new_ones(len(marks))
    return (marks.amax(1) + 1).clamp_min(1)


def present_groups(counts: Tensor) -> Tensor:
    """Which groups an example has, bool [M, C], C at least 1."""
    most = max(1, int(counts.max())) if len(counts) else 1
    return torch.arange(most, device=counts.device) < counts[:, None]


def regroup(keep: Tensor, marks: Tensor, counts: Tensor) -> Grouped:
    """A row for each group of each example, with its kept tokens in their order.

    A group without kept tokens still has a row, an empty one.

    Args:
        keep: bool [M, N]. marks: int64 [M, N], below `counts`. counts: int64 [M].
    """
    device, starts = marks.device, counts.cumsum(0) - counts
    example = torch.repeat_interleave(torch.arange(len(counts), device=device), counts)  # [R]
    number = ranks(counts, len(example))
    rows, columns = (keep & (marks >= 0)).nonzero(as_tuple=True)  # of T tokens
    group = starts[rows] + marks[rows, columns]
    order = torch.argsort(group, stable=True)
    group, position = group[order], (rows * marks.shape[1] + columns)[order]
    sizes = torch.bincount(group, minlength=len(example))  # [R]
    rank = ranks(sizes, len(group))
    longest = int(sizes.max()) if len(sizes) else 0
    index = marks.new_zeros(len(example), longest).index_put((group, rank), position)
    return Grouped(example, number, index, torch.arange(longest, device=device) < sizes[:, None])


def padded_groups(values: Tensor, grouped: Grouped, present: Tensor) -> Tensor:
    """A vector of each group, [R, D], as [M, C, D]; zeros for the groups that are not `present`."""
    base = values.new_zeros(*present.shape, values.shape[-1])
    return base.index_put((grouped.example, grouped.number), values)


def group_sums(values: Tensor, marks: Tensor, present: Tensor) -> Tensor:
    """Sum of `values` [M, N] over the tokens of each group, [M, C]."""
    groups = present.shape[1]
    column = torch.where(marks < 0, groups, marks)
    return values.new_zeros(len(marks), groups + 1).scatter_add(1, column, values)[:, :groups]

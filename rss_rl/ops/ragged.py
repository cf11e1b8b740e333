"""Indices into concatenated rows of different lengths, and where sentences end.

A sentence ends at the last of consecutive tokens that consist only of '.', '!' and '?'.

Legend: B texts, N tokens.
"""

from __future__ import annotations

from collections.abc import Iterable

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


def stop_ids(words: Iterable[str], first: int = 0) -> Tensor:
    """Ids of the words that can end a sentence, int64 [S]; `first` is that of the first word."""
    found = [number for number, word in enumerate(words, first) if word and set(word) <= _STOPS]
    return torch.tensor(found, dtype=torch.int64)


def sentence_ends(tokens: Tensor, stops: Tensor) -> Tensor:
    """Whether a sentence ends with a token of int64 [B, N], bool [B, N].

    Args:
        stops: see `stop_ids`.
    """
    stopping = torch.isin(tokens, stops)
    more = torch.cat([stopping[:, 1:], torch.zeros_like(stopping[:, :1])], 1)
    return stopping & ~more


def sentence_numbers(ends: Tensor) -> Tensor:
    """The number of the sentence that each token is in, int64 [..., N] from 0.

    Args:
        ends: bool [..., N], see `sentence_ends`.
    """
    count = ends.long()
    return count.cumsum(-1) - count

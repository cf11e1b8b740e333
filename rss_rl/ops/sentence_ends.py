"""Where sentences end: at the last of consecutive tokens that consist only of '.', '!' and '?'.

Legend: B texts, N tokens.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

_STOPS = frozenset(".!?")


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

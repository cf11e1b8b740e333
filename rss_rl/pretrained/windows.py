"""Cuts texts of any length into windows that fit a transformer, and groups them by length.

Legend: M texts, R words, P pieces of these, W windows.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rss_rl.ops.ragged import ranks

_FULL, _NEAR = 0.85, 4
"""Windows share a batch if at least this share of the longest, or at most so many pieces less."""
_FEW = 4096
"""Cells that take a GPU as long as the launches of its kernels, padded or not."""


class Windows(NamedTuple):
    """Pieces of the texts, window after window.

    text      int64 [W], the text that each window is of
    length    int64 [W], its pieces, at least 1
    position  int64 [P], of each piece within its window, from 0
    """

    text: Tensor
    length: Tensor
    position: Tensor


def cut(text: Tensor, count: Tensor, texts: int, room: int, place: Tensor | None = None) -> Windows:
    """Windows of at most `room` pieces.

    Args:
        text: int64 [R], the text of each word, ascending; R at least 1.
        count: int64 [R], pieces of each word, at least 1.
        texts: M.
        place: int64 [R], of each word in its text before words were left out. Pieces keep the
            distances that words had, a word left out counting as one piece; None: gaps are closed,
            and the windows of a text are equally long.
    """
    owner = torch.repeat_interleave(text, count)  # [P]
    size = torch.bincount(owner, minlength=texts)  # [M]
    rank = ranks(size)  # of a piece in its text
    if place is None:
        parts = (size + room - 1) // room
        window = rank * parts[owner] // size[owner]
        position = rank
    else:
        more = torch.repeat_interleave(place - ranks(torch.bincount(text, minlength=texts)), count)
        position = rank + more
        window = position // room
    key = (owner << 32) + window
    _, at, length = torch.unique_consecutive(key, return_inverse=True, return_counts=True)
    first = length.cumsum(0) - length
    position = position % room if place is not None else position - position[first][at]
    return Windows(owner[first], length, position)


def groups(length: Tensor, cells: int) -> list[tuple[Tensor, list[int]]]:
    """Windows to be read together, int64 [G], and their lengths, the longest first.

    They are of similar length, on a GPU of any lengths as long as they are few.

    Args:
        length: int64 [W].
        cells: most of a group, with padding; a longer window is a group by itself.
    """
    few = _FEW if length.is_cuda else 0
    order = torch.argsort(length, descending=True, stable=True)
    every: list[tuple[Tensor, list[int]]] = []
    start = 0
    lengths = length[order].tolist()
    for end in range(1, len(lengths) + 1):
        longest = lengths[start]
        if end < len(lengths):
            filled = (end + 1 - start) * longest
            near = lengths[end] >= min(_FULL * longest, longest - _NEAR)
            if filled <= few or (near and filled <= cells):
                continue
        every.append((order[start:end], lengths[start:end]))
        start = end
    return every

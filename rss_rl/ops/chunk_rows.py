"""Heads grouped by the chunk of dependents in which their range ends.

Legend: M sequences, J heads, I dependents, C chunks of T dependents each, P rows of H <= T heads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rss_rl.ops.attention_pairs import Order
from rss_rl.ops.masking import Gathered
from rss_rl.ops.ragged import ranks


@dataclass(frozen=True)
class Rows:
    """Heads that share a sequence and a chunk, in rows of H.

    chunk_index  int64 [P]     m C + b: the row's heads attend to all chunks before b of sequence m
                               and to the first dependents of chunk b
    slots        int64 [P, H]  the heads, m J + j; M J where there is none
    limit        int64 [P, H]  how many dependents of chunk b each attends to, 1 to T; 0 for no head
    """

    chunk_index: Tensor
    slots: Tensor
    limit: Tensor


def reaches(heads: Gathered, dependents: Gathered, order: Order) -> list[tuple[bool, Tensor]]:
    """How many dependents each head may attend to, counted from the first or from the last.

    Args:
        heads: positions [M, J]. dependents: positions [M, I], ascending among the kept ones, which
            come first.

    Returns:
        One or two of (reversed, int64 [M, J]): the number of dependents among the first (reversed:
        the last) of the I cells, empty cells included.
    """
    tokens = dependents.index.shape[1]
    beyond = torch.iinfo(torch.int64).max
    positions = torch.where(dependents.kept, dependents.index, beyond).contiguous()
    wanted = heads.index.contiguous()
    found = []
    if order != "after":
        before = torch.searchsorted(positions, wanted)
        found.append((False, torch.where(heads.kept, before, 0)))
    if order != "before":
        upto = torch.searchsorted(positions, wanted, right=True)
        some = heads.kept & (upto < dependents.kept.sum(1, keepdim=True))
        found.append((True, torch.where(some, tokens - upto, 0)))
    return found


def rows_of(reach: Tensor, chunk: int, chunks: int) -> Rows:
    """Rows of the heads that reach at least one dependent, no longer than the fullest chunk needs.

    Args:
        reach: int64 [M, J], at most `chunk` * `chunks`. chunk: T. chunks: C.
    """
    heads, flat = reach.shape[1], reach.reshape(-1)
    head = flat.nonzero().squeeze(1)
    last = flat[head] - 1
    key = head // max(1, heads) * chunks + last // chunk
    order = torch.argsort(key, stable=True)
    head, last, key = head[order], last[order], key[order]
    counts = torch.bincount(key, minlength=len(reach) * chunks)  # heads of each chunk
    rank = ranks(counts, len(key))
    most = int(counts.max()) if len(key) else 1
    length = -(-most // -(-most // chunk))  # H: the fewest rows for the fullest chunk, evenly full
    filled = -(-counts // length)  # rows of each chunk
    row = (filled.cumsum(0) - filled)[key] + rank // length
    chunk_index = torch.repeat_interleave(torch.arange(len(filled), device=key.device), filled)
    slots = flat.new_full((len(chunk_index), length), len(flat))
    limit = flat.new_zeros(len(chunk_index), length)
    cell = row, rank % length
    return Rows(chunk_index, slots.index_put(cell, head), limit.index_put(cell, last % chunk + 1))

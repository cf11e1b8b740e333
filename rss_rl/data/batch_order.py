"""The order of training batches: random access to any of them, in memory that a constant bounds.

Legend: n rows, S sentence slots.

An epoch is a random order of all rows, cut into pools, and a pool into batches of similar lengths;
for batches of mixed lengths, a pool is one batch.
The order: shards are permuted, a few that follow each other make a window, and the rows of a
window are permuted; a pool is no larger than a window. So nothing of the size of the data is ever
held, and the rows of nearby batches lie in few shards. Data of one window, as small ones are, are
shuffled as a whole.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np

from rss_rl.data.length_buckets import split_by_length, within_tokens
from rss_rl.seeding import generator, keyed_permutation, stream_key
from rss_rl.types import Array

WINDOW_SHARDS = 4
"""Shards whose rows are mixed with each other."""
_POOL_BATCHES = 128
"""Batches made from one pool of rows at most: bounds time and memory, and mixes who meets whom."""
_REACH = 16
"""Least of the batches that callers may look ahead, and back."""


class ShardedLengths(Protocol):
    """What the order needs to know of a split."""

    @property
    def shard_rows(self) -> Sequence[int]:
        """Rows of each shard, in the order in which rows are numbered."""

    def lengths(self, rows: Array) -> Array:
        """int64 [len(rows), S], real tokens of each sentence."""


class BatchOrder:
    """The batches of epoch after epoch, numbered from 0; a pure function of its arguments.

    Each row is in exactly one batch of an epoch. All batches have `batch_size` rows, but one of an
    epoch whose rows are no multiple of it; which one, and which rows share it, is random. With
    `batch_tokens` batches of more tokens are cut further, so that epochs have more batches, not all
    as many: to find one by its number, the batches of all pools before are counted once, which a
    resumed run does at its start, and no training is repeated.

    Args:
        examples: the split, such as `rss_rl.data.store.Split`.
        batch_size: rows of a batch.
        seed: seed of the run.
        batch_tokens: padded tokens of a batch, see `within_tokens`; None: any number.
        reach: batches that callers look ahead, and back, without a pool being made twice.
        by_length: batches of similar lengths, which leave little padding; else of mixed lengths.
    """

    def __init__(
        self,
        examples: ShardedLengths,
        batch_size: int,
        seed: int,
        *,
        batch_tokens: int | None = None,
        reach: int = _REACH,
        by_length: bool = True,
    ) -> None:
        self._shard_rows = np.asarray(examples.shard_rows, dtype=np.int64)
        self._n = int(self._shard_rows.sum())
        self._examples, self._batch_size, self._seed = examples, batch_size, seed
        self._windows = -(-len(self._shard_rows) // WINDOW_SHARDS)
        self._pool_batches = _POOL_BATCHES if by_length else 1
        if self._windows > 1:
            window = self._n // self._windows  # rows, on average
            self._pool_batches = max(1, min(self._pool_batches, window // batch_size))
        self._kept = 1 + -(-max(reach, _REACH) // self._pool_batches)
        self._batch_tokens = batch_tokens
        self._pools: dict[tuple[int, int], list[Array]] = {}
        self._ends: list[int] = []  # batches of the first pools, where their number varies

    @property
    def batches_per_epoch(self) -> int:
        """Batches of every epoch, ceil(n / batch_size); with `batch_tokens` there are more."""
        return -(-self._n // self._batch_size)

    @property
    def _pools_per_epoch(self) -> int:
        return -(-self.batches_per_epoch // self._pool_batches)

    def rows(self, number: int) -> Array:
        """Rows of batch `number`, int64 [<= batch_size]; the array is the caller's.

        Batches near each other are found fast in any order; a jump costs the making of a pool.

        Raises:
            DataError: a shard cannot be read.
        """
        address, index = self._index(number)
        return self._batches(address)[index].copy()

    def _index(self, number: int) -> tuple[tuple[int, int], int]:
        """The epoch and pool of a batch, and its index there."""
        if self._batch_tokens is None:
            epoch, index = divmod(number, self.batches_per_epoch)
            return (epoch, index // self._pool_batches), index % self._pool_batches
        while not self._ends or self._ends[-1] <= number:
            self._count_pool()
        pool = bisect.bisect_right(self._ends, number)
        before = self._ends[pool - 1] if pool else 0
        return divmod(pool, self._pools_per_epoch), number - before

    def _count_pool(self) -> None:
        """Count the batches of the first pool that was not counted."""
        batches = self._batches(divmod(len(self._ends), self._pools_per_epoch))
        self._ends.append((self._ends[-1] if self._ends else 0) + len(batches))

    def _batches(self, address: tuple[int, int]) -> list[Array]:
        if address not in self._pools:
            self._pools[address] = self._pool(*address)
            if len(self._pools) > self._kept:
                # Callers go forward, so the first is over, unless somebody began anew.
                first = min(self._pools)
                del self._pools[max(self._pools) if first == address else first]
        return self._pools[address]

    def _pool(self, epoch: int, pool: int) -> list[Array]:
        """The batches of one pool, in random order."""
        size, batches, most = self._batch_size, self.batches_per_epoch, self._pool_batches
        missing = batches * size - self._n  # rows that the short batch lacks
        with_short = int(generator(self._seed, "short", epoch).integers(-(-batches // most)))
        first, last = pool * most, min((pool + 1) * most, batches)
        start = first * size - (missing if pool > with_short else 0)
        stop = last * size - (missing if pool >= with_short else 0)
        rows = self._ordered(epoch, start, stop)
        lengths = self._examples.lengths(rows)  # [len(rows), S]
        draw = generator(self._seed, "pool", epoch, pool)
        indices = np.arange(len(rows))
        cut: list[Array] = []
        if spare := len(rows) % size:
            # The short batch is a window anywhere in the order of lengths: were it what is left at
            # an end, the longest or the shortest rows would share it in every epoch.
            by_length = np.argsort(lengths.sum(axis=1), kind="stable")
            low = int(draw.integers(0, len(rows) - spare + 1))
            cut.append(by_length[low : low + spare])
            indices = np.delete(indices, cut[0])
        cut.extend(split_by_length(lengths, indices, size))
        cut = within_tokens(lengths, cut, self._batch_tokens)
        return [rows[cut[i]] for i in draw.permutation(len(cut))]

    def _ordered(self, epoch: int, first: int, last: int) -> Array:
        """Rows at positions `first` to `last` of the random order of an epoch."""
        shards = generator(self._seed, "shards", epoch).permutation(len(self._shard_rows))
        before = np.cumsum(self._shard_rows) - self._shard_rows  # first row of each shard
        windows = np.array_split(shards, self._windows)
        ends = np.cumsum([0, *(int(self._shard_rows[window].sum()) for window in windows)])
        rows = []
        for number, (bottom, top) in enumerate(pairwise(ends.tolist())):
            low, high = max(first, bottom), min(last, top)
            if low >= high:
                continue
            key = stream_key(self._seed, "rows", epoch, number)
            inside = keyed_permutation(key, top - bottom, np.arange(low - bottom, high - bottom))
            window = windows[number]
            tops = np.cumsum(self._shard_rows[window])
            which = np.searchsorted(tops, inside, side="right")
            offset = before[window] - (tops - self._shard_rows[window])
            rows.append(inside + offset[which])
        return np.concatenate(rows)

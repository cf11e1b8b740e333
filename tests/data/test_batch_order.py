"""The order of training batches: any of them by number, each row once an epoch, well mixed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suite.training_step import padding_share

from rss_rl.data.batch_order import WINDOW_SHARDS, BatchOrder
from rss_rl.data.length_buckets import within_tokens
from rss_rl.types import Array


class Lengths:
    """A split of which only the lengths are known, cut into shards."""

    def __init__(self, lengths: Array, shard_rows: list[int] | None = None) -> None:
        self._lengths = lengths
        self.shard_rows = shard_rows or [len(lengths)]
        self.asked: list[int] = []

    def lengths(self, rows: Array) -> Array:
        self.asked.append(len(rows))
        return self._lengths[rows]


def pairs(n: int = 5000) -> Array:
    """Lengths like those of sentence pairs: long tails, slightly correlated."""
    draw = np.random.default_rng(0)
    common = draw.gamma(4.0, 1.0, n)
    slots = [2 + common + draw.gamma(4.0, 1.2, n) for _ in range(2)]
    return np.stack(slots, axis=1).astype(np.int64)


def epoch_of(order: BatchOrder, epoch: int) -> list[Array]:
    count = order.batches_per_epoch
    return [order.rows(epoch * count + place) for place in range(count)]


@st.composite
def splits(draw: st.DrawFn) -> Lengths:
    shards = draw(st.lists(st.integers(1, 150), min_size=1, max_size=11))
    slots, longest = draw(st.integers(1, 2)), draw(st.integers(1, 40))
    generator = np.random.default_rng(draw(st.integers(0, 1000)))
    return Lengths(generator.integers(1, longest + 1, (sum(shards), slots)), shards)


@settings(max_examples=40)
@given(splits(), st.integers(1, 70), st.integers(0, 4), st.booleans())
def test_each_row_is_in_exactly_one_batch_of_an_epoch(
    split: Lengths, size: int, epoch: int, by_length: bool
) -> None:
    order = BatchOrder(split, size, seed=3, by_length=by_length)
    n = sum(split.shard_rows)
    assert order.batches_per_epoch == -(-n // size)
    batches = epoch_of(order, epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(n))
    assert all(rows.dtype == np.int64 for rows in batches)
    sizes = sorted(len(rows) for rows in batches)
    assert all(full == size for full in sizes[1:])


def test_little_padding_in_pairs() -> None:
    lengths = pairs(20_000)
    order = BatchOrder(Lengths(lengths, [4000] * 5), 64, seed=0)
    assert padding_share(lengths, epoch_of(order, 0)) < 0.10
    # Within the batches of one pool, order says nothing about length.
    sizes = [int(lengths[order.rows(number)].sum()) for number in range(128)]
    assert abs(float(np.corrcoef(np.arange(128), sizes)[0, 1])) < 0.3


def test_a_window_of_shards_is_mixed_and_windows_differ_from_epoch_to_epoch() -> None:
    shards = [1000] * (3 * WINDOW_SHARDS)
    order = BatchOrder(Lengths(pairs(sum(shards)), shards), 10, seed=0)
    windows = []
    for epoch in range(3):
        # A third of an epoch is one window: all rows of its shards and of no other.
        rows = order._ordered(epoch, 0, 1000 * WINDOW_SHARDS)
        owners = np.bincount(rows // 1000, minlength=len(shards))
        assert sorted(owners.tolist())[-WINDOW_SHARDS:] == [1000] * WINDOW_SHARDS
        windows.append(frozenset(np.flatnonzero(owners).tolist()))
        mixed = np.bincount(rows[:400] // 1000, minlength=len(shards))
        assert mixed[owners > 0].min() > 60
    assert len(set(windows)) > 1


def cells(lengths: Array, rows: Array) -> int:
    return int(lengths[rows].max(axis=0).sum()) * len(rows)


@given(splits(), st.integers(1, 70), st.integers(1, 400))
def test_rows_of_an_epoch_come_once_and_no_batch_is_too_large(
    split: Lengths, size: int, tokens: int
) -> None:
    order = BatchOrder(split, size, seed=3, batch_tokens=tokens)
    n, lengths = sum(split.shard_rows), split._lengths
    place = 0
    for _ in range(2):
        seen: list[int] = []
        while len(seen) < n:
            rows = order.rows(place)
            assert 1 <= len(rows) <= size
            assert len(rows) == 1 or cells(lengths, rows) <= tokens
            seen += rows.tolist()
            place += 1
        assert sorted(seen) == list(range(n))


@pytest.mark.parametrize("tokens", [None, 150])
def test_any_batch_can_be_asked_for_as_by_a_resumed_run(tokens: int | None) -> None:
    lengths, shards = pairs(3000), [700, 900, 300, 600, 400, 100]

    def order() -> BatchOrder:
        return BatchOrder(Lengths(lengths.copy(), shards), 8, seed=1, batch_tokens=tokens)

    forward, other = order(), order()
    count = 4 * forward.batches_per_epoch
    expected = [forward.rows(number).tolist() for number in range(count)]
    assert max(len(rows) for rows in expected) == 8
    if tokens:
        assert sum(len(rows) for rows in expected) < 0.9 * 4 * 3000  # cut by their tokens
    for number in np.random.default_rng(0).permutation(count)[:60].tolist():
        assert other.rows(number).tolist() == expected[number]
    assert order().rows(count - 1).tolist() == expected[-1]
    assert len(other._pools) <= other._kept
    # The rows handed out are the caller's.
    other.rows(5)[:] = -1
    assert other.rows(5).tolist() == expected[5]


@pytest.mark.parametrize("most", [1, 9, 10, 11, 39, 40])
def test_what_fits_stays_whole_and_a_long_row_is_alone(most: int) -> None:
    lengths = np.array([[1], [10], [2], [3]])
    found = within_tokens(lengths, [np.arange(4)], most)
    if most == 40:
        assert [rows.tolist() for rows in found] == [[0, 1, 2, 3]]
    else:
        assert found[0].tolist() == ([1, 3, 2] if most == 39 else [1])
        assert sorted(np.concatenate(found).tolist()) == [0, 1, 2, 3]

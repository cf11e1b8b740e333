"""The order of training batches: any of them by number, each row once an epoch, well mixed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rss_rl.data.batch_order import WINDOW_SHARDS, BatchOrder
from rss_rl.data.length_buckets import padding_share, plain_batches, within_tokens
from rss_rl.errors import DataError
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


def test_several_pools_and_a_short_batch_hold_each_row_once() -> None:
    # 901 rows in batches of 2 make four pools of 128 batches, the short batch in any of them.
    lengths = pairs(901)
    order = BatchOrder(Lengths(lengths, [300, 300, 300, 1]), 2, seed=0)
    places = set()
    for epoch in range(12):
        batches = epoch_of(order, epoch)
        assert sorted(np.concatenate(batches).tolist()) == list(range(901))
        places.add(next(i for i, rows in enumerate(batches) if len(rows) == 1) // 128)
    assert places == {0, 1, 2, 3}


def test_any_batch_can_be_asked_for_in_any_order() -> None:
    lengths, shards = pairs(3000), [700, 900, 300, 600, 400, 100]
    forward = BatchOrder(Lengths(lengths, shards), 8, seed=1)
    count = forward.batches_per_epoch
    expected = [forward.rows(number).tolist() for number in range(2 * count)]
    other = BatchOrder(Lengths(lengths.copy(), shards), 8, seed=1)
    for number in np.random.default_rng(0).permutation(2 * count)[:60].tolist():
        assert other.rows(number).tolist() == expected[number]
    # The rows handed out are the caller's.
    other.rows(5)[:] = -1
    assert other.rows(5).tolist() == expected[5]


def test_other_seeds_and_epochs_mix_rows_anew() -> None:
    lengths = pairs(1000)
    first = {frozenset(rows.tolist()) for rows in epoch_of(BatchOrder(Lengths(lengths), 64, 1), 2)}
    for seed, epoch in ((1, 3), (2, 2)):
        other = epoch_of(BatchOrder(Lengths(lengths), 64, seed), epoch)
        # Not merely in another order: who is with whom differs.
        assert sum(frozenset(rows.tolist()) in first for rows in other) < len(other) / 4


def test_little_padding_in_pairs() -> None:
    lengths = pairs(20_000)
    order = BatchOrder(Lengths(lengths, [4000] * 5), 64, seed=0)
    assert padding_share(lengths, epoch_of(order, 0)) < 0.10
    # Within the batches of one pool, order says nothing about length.
    sizes = [int(lengths[order.rows(number)].sum()) for number in range(128)]
    assert abs(float(np.corrcoef(np.arange(128), sizes)[0, 1])) < 0.3


def test_batches_of_mixed_lengths_are_random_samples() -> None:
    lengths = pairs(20_000)
    spread = {}
    for by_length in (True, False):
        order = BatchOrder(Lengths(lengths, [4000] * 5), 64, seed=0, by_length=by_length)
        means = [float(lengths[rows].mean()) for rows in epoch_of(order, 0) if len(rows) == 64]
        spread[by_length] = float(np.std(means))
    expected = float(lengths.mean(axis=1).std()) / 8  # of the mean of 64 rows
    assert 0.8 * expected < spread[False] < 1.2 * expected
    assert spread[True] > 4 * expected


def test_the_short_batch_is_not_always_the_longest_rows() -> None:
    lengths = pairs(130)
    order = BatchOrder(Lengths(lengths), 64, seed=0)
    short = [next(rows for rows in epoch_of(order, e) if len(rows) == 2) for e in range(20)]
    assert len({frozenset(rows.tolist()) for rows in short}) > 10


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


@pytest.mark.parametrize(
    ("shards", "batch_size", "numbers", "pools"),
    [([500] * 8, 4, 300, 3), ([40] * 100, 70, 40, 28)],  # pools of 128 batches, and of 2
)
def test_looking_ahead_and_back_makes_each_pool_once(
    shards: list[int], batch_size: int, numbers: int, pools: int
) -> None:
    split = Lengths(pairs(4000), shards)
    order = BatchOrder(split, batch_size, seed=0)
    for number in range(numbers):
        order.rows(number + 15)
        order.rows(number)
    assert len(split.asked) == pools
    assert len(order._pools) < 10
    first = order.rows(0).tolist()
    assert BatchOrder(split, batch_size, seed=0).rows(0).tolist() == first
    assert max(split.asked) <= 128 * batch_size


def test_a_pool_is_no_larger_than_a_window() -> None:
    shards = [100] * 30
    order = BatchOrder(Lengths(pairs(3000), shards), 20, seed=0)
    for number in range(order.batches_per_epoch):
        lying_in = {int(row) // 100 for row in order.rows(number)}
        assert len(lying_in) <= 2 * WINDOW_SHARDS


def test_the_numbers_of_one_address_are_pinned() -> None:
    # A run that is resumed by a later version must see the batches it began with.
    split = Lengths(np.array([[3], [1], [2], [3], [1], [9], [2]]), [3, 4])
    assert [rows.tolist() for rows in epoch_of(BatchOrder(split, 2, seed=5), 1)] == PINNED


PINNED = [[0], [1, 4], [2, 6], [3, 5]]


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(DataError, match="batch of 0 rows"):
        BatchOrder(Lengths(pairs(5)), 0, 0)
    with pytest.raises(DataError, match="no rows"):
        BatchOrder(Lengths(np.zeros((0, 1), np.int64)), 2, 0)
    with pytest.raises(DataError, match="no batch -1"):
        BatchOrder(Lengths(pairs(5)), 2, 0).rows(-1)


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
    assert order.batches_per_epoch <= place


@given(splits(), st.integers(1, 70))
def test_a_bound_that_nothing_reaches_changes_nothing(split: Lengths, size: int) -> None:
    free, bound = (BatchOrder(split, size, 3, batch_tokens=t) for t in (None, 10**9))
    assert bound.batches_per_epoch == free.batches_per_epoch
    for number in range(3 * free.batches_per_epoch):
        assert bound.rows(number).tolist() == free.rows(number).tolist()


def test_a_resumed_run_finds_its_batch() -> None:
    lengths, shards = pairs(3000), [700, 900, 300, 600, 400, 100]

    def order() -> BatchOrder:
        return BatchOrder(Lengths(lengths.copy(), shards), 8, seed=1, batch_tokens=150)

    forward = order()
    count = forward.batches_per_epoch
    assert count > 1.2 * 3000 / 8
    expected = [forward.rows(number).tolist() for number in range(3 * count)]
    other = order()
    for number in np.random.default_rng(0).permutation(3 * count)[:40].tolist():
        assert other.rows(number).tolist() == expected[number]
    assert order().rows(3 * count - 1).tolist() == expected[-1]
    assert len(other._pools) <= other._kept


def test_batches_are_filled_up() -> None:
    lengths = pairs(4000)
    order = BatchOrder(Lengths(lengths), 64, seed=0, batch_tokens=1000)
    batches = [order.rows(number) for number in range(order.batches_per_epoch)]
    full = [cells(lengths, rows) for rows in batches]
    assert np.mean(full) > 600
    assert max(full) <= 1000


def test_evaluation_is_bounded_too() -> None:
    lengths = pairs(500)
    batches = plain_batches(lengths, 128, 700)
    assert sorted(np.concatenate(batches).tolist()) == list(range(500))
    assert max(cells(lengths, rows) for rows in batches) <= 700
    assert [b.tolist() for b in plain_batches(lengths, 128)] == [
        b.tolist() for b in plain_batches(lengths, 128, 10**9)
    ]


@pytest.mark.parametrize("most", [1, 9, 10, 11, 39, 40])
def test_what_fits_stays_whole_and_a_long_row_is_alone(most: int) -> None:
    lengths = np.array([[1], [10], [2], [3]])
    found = within_tokens(lengths, [np.arange(4)], most)
    if most == 40:
        assert [rows.tolist() for rows in found] == [[0, 1, 2, 3]]
    else:
        assert found[0].tolist() == ([1, 3, 2] if most == 39 else [1])
        assert sorted(np.concatenate(found).tolist()) == [0, 1, 2, 3]

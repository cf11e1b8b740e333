"""Batches of like lengths: each row once, the same for the same address, little padding."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rss_rl.data.length_buckets import plain_batches
from rss_rl.types import Array


@st.composite
def lengths_and_size(draw: st.DrawFn) -> tuple[Array, int]:
    n, slots = draw(st.integers(0, 300)), draw(st.integers(1, 2))
    seed, size = draw(st.integers(0, 1000)), draw(st.integers(1, 70))
    longest = draw(st.integers(1, 40))
    return np.random.default_rng(seed).integers(1, longest + 1, (n, slots)), size


@given(lengths_and_size())
def test_every_row_is_in_exactly_one_batch(case: tuple[Array, int]) -> None:
    lengths, size = case
    batches = plain_batches(lengths, size)
    rows = np.concatenate([*batches, np.zeros(0, np.int64)])
    assert sorted(rows.tolist()) == list(range(len(lengths)))
    assert all(batch.dtype == np.int64 for batch in batches)
    assert all(len(batch) == size for batch in sorted(batches, key=len)[1:])
    assert len(batches) == -(-len(lengths) // size)


def test_batches_of_many_rows_lie_in_chunks() -> None:
    lengths = np.random.default_rng(0).integers(1, 9, ((1 << 17) + 100, 1))
    batches = plain_batches(lengths, 512)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    assert max(int(np.ptp(rows)) for rows in batches) < 1 << 16
    assert [len(rows) for rows in batches] == [512] * 256 + [100]

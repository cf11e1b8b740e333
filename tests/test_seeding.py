"""Streams by address: equal addresses agree, different ones do not, and the numbers look random."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rss_rl.seeding import (
    example_keys,
    keyed_permutation,
    keyed_uniforms,
    stream_key,
)

KEY = stream_key(0, "selection", 3)


def uniforms(
    rows: list[int] | range, samples: int = 3, width: int = 5, key: int = KEY
) -> np.ndarray:
    return keyed_uniforms(key, np.array(rows, dtype=np.int64), samples, 2, width)


def test_stream_key_is_the_start_of_a_sha_256() -> None:
    # Fixed for ever: a resumed run must find the streams of the version that began it.
    digest = hashlib.sha256(b"0\x1fselection\x1f3").digest()
    assert stream_key(0, "selection", 3) == int.from_bytes(digest[:8], "little") // 2
    assert all(0 <= stream_key(seed, "a") < 2**63 for seed in range(200))


def test_every_part_of_an_address_matters() -> None:
    addresses = [
        (0,),
        (1,),
        (0, "a"),
        (0, "b"),
        (0, "a", 1),
        (0, "a", 2),
        (0, "a1"),
        (0, "a", "1", ""),
    ]
    assert len({stream_key(*address) for address in addresses}) == len(addresses)
    assert stream_key(0, "a", 1) == stream_key(0, "a", "1")


def mix(state: int) -> int:
    """SplitMix64's output function on whole numbers."""
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB % 2**64
    return state ^ (state >> 31)


@given(
    key=st.integers(0, 2**63 - 1),
    row=st.integers(0, 10**9),
    sample=st.integers(0, 3),
    role=st.integers(0, 1),
    position=st.integers(0, 20),
)
def test_uniforms_equal_the_slow_twin(
    key: int, row: int, sample: int, role: int, position: int
) -> None:
    golden = 0x9E3779B97F4A7C15
    place = (sample << 40) + (role << 32) + position
    state = mix(((place + 1) * golden + mix((row * golden + key) % 2**64)) % 2**64)
    state = mix((state + golden) % 2**64)
    drawn = keyed_uniforms(key, np.array([row]), 4, 2, 21)
    assert drawn.dtype == np.float32
    assert float(drawn[sample, 0, role, position]) == ((state >> 41) + 0.5) / 2**23


@given(
    rows=st.lists(st.integers(0, 10**6), min_size=1, max_size=5, unique=True),
    samples=st.integers(1, 4),
    width=st.integers(1, 7),
    more=st.integers(0, 9),
    data=st.data(),
)
def test_a_token_draws_the_same_whatever_is_drawn_with_it(
    rows: list[int], samples: int, width: int, more: int, data: st.DataObject
) -> None:
    whole = uniforms(rows, samples, width)
    order = data.draw(st.permutations(range(len(rows))))
    shuffled = uniforms([rows[n] for n in order], samples + more, width + more)
    assert np.array_equal(shuffled[:samples, :, :, :width], whole[:, order])
    alone = uniforms([rows[0]], samples, width)
    assert np.array_equal(alone[:, 0], whole[:, 0])


@pytest.mark.parametrize("seed", range(5))
def test_distribution_is_uniform(seed: int) -> None:
    key = stream_key(seed, "selection", 0)
    cells = {
        "rows": keyed_uniforms(key, np.arange(20_000), 1, 1, 1),
        "samples": keyed_uniforms(key, np.array([3]), 20_000, 1, 1),
        "positions": keyed_uniforms(key, np.array([3]), 1, 1, 20_000),
        "updates": np.stack(
            [
                keyed_uniforms(stream_key(seed, "selection", n), np.array([0]), 1, 2, 2)
                for n in range(3000)
            ]
        ),
    }
    for name, drawn in cells.items():
        assert stats.kstest(drawn.ravel(), "uniform").pvalue > 1e-3, name


@given(seed=st.integers(0, 100), update=st.integers(0, 10**6), row=st.integers(0, 10**9))
def test_example_keys_equal_the_slow_twin(seed: int, update: int, row: int) -> None:
    key = stream_key(seed, "dropout", update)
    wanted = mix((row * 0x9E3779B97F4A7C15 + key) % 2**64)
    keys = example_keys(seed, "dropout", update, np.array([3, row, 5]))
    assert keys.dtype == np.int64
    assert int(keys[1]) % 2**64 == wanted


@given(st.integers(1, 700), st.integers(0, 2**63 - 1))
def test_a_keyed_permutation_is_a_bijection(size: int, key: int) -> None:
    there = keyed_permutation(key, size, np.arange(size))
    assert sorted(there.tolist()) == list(range(size))
    # Each place stands for itself, whatever else is asked for.
    places = np.random.default_rng(key).integers(0, size, (3, 4))
    np.testing.assert_array_equal(keyed_permutation(key, size, places), there[places])

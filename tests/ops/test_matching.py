"""What two sentences have in common, against loops in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rss_rl.ops import matching
from rss_rl.ops.matching import MATCH_SIZE, Sequences, best_matches, cross_features

E = 4
lengths = st.lists(st.integers(0, 5), min_size=1, max_size=4)


def sequences(counts: list[int], *, seed: int, width: int | None = None) -> Sequences:
    """Ids with their vectors, in double, of which some are zero; what padding holds is noise."""
    words = np.random.default_rng(0).normal(size=(9, E))
    words[3] = 0
    draw = np.random.default_rng(seed)
    keep = np.arange(max(counts) if width is None else width) < np.array(counts)[:, None]
    tokens = draw.integers(0, len(words), keep.shape)
    return Sequences(*map(torch.from_numpy, (tokens, words[tokens], keep)))


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    size = float(np.sqrt(a @ a) * np.sqrt(b @ b))
    return 0.0 if size == 0 else float(a @ b) / size


def twin(of: Sequences, other: Sequences) -> np.ndarray:
    """[x_i; x_i * q; q; m_i; e_i] token by token."""
    (ids, x, kept), (their_ids, y, theirs) = ([part.numpy() for part in one] for one in (of, other))
    result = np.zeros((*kept.shape, 3 * E + MATCH_SIZE))
    for b, i in zip(*kept.nonzero(), strict=True):
        real = y[b][theirs[b]]
        q = sum(real, np.zeros(E)) / max(1, len(real))
        m = max((cosine(x[b, i], row) for row in real), default=0.0)
        e = float(any(ids[b, i] == known for known in their_ids[b][theirs[b]]))
        result[b, i] = np.concatenate([x[b, i], x[b, i] * q, q, [m, e]])
    return result


@settings(max_examples=60)
@given(lengths, st.integers(0, 10**6), st.data())
def test_it_equals_the_loop(ours: list[int], seed: int, data: st.DataObject) -> None:
    theirs = data.draw(st.lists(st.integers(0, 5), min_size=len(ours), max_size=len(ours)))
    of, other = sequences(ours, seed=seed), sequences(theirs, seed=seed + 1)
    np.testing.assert_allclose(cross_features(of, other).numpy(), twin(of, other), atol=1e-12)


@pytest.mark.parametrize("at_a_time", [1, 7, 40])
def test_pieces_are_the_whole(at_a_time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    of, other = sequences([11, 4, 7], seed=2), sequences([3, 0, 2], seed=3)
    whole = best_matches(of, other)
    monkeypatch.setattr(matching, "_PAIRS_AT_A_TIME", at_a_time)
    np.testing.assert_allclose(best_matches(of, other), whole, rtol=0, atol=1e-14)
    assert (whole[..., 1] == 1).any()


def test_nothing_beside_it_says_nothing() -> None:
    of = sequences([3, 1], seed=6)
    for other in (sequences([0, 0], seed=7), sequences([0, 0], seed=7, width=4)):
        result = cross_features(of, other)
        assert (result[..., E:] == 0).all()
        np.testing.assert_array_equal(result[..., :E], of.vectors * of.keep[..., None])
    empty = Sequences(*(part[:0] for part in of))
    assert cross_features(empty, empty).shape == (0, 3, 3 * E + MATCH_SIZE)


def test_autocast_changes_no_bit() -> None:
    of, other = (
        Sequences(one.tokens, one.vectors.float(), one.keep)
        for one in (sequences([6, 3], seed=8), sequences([2, 5], seed=9))
    )
    plain = cross_features(of, other)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(cross_features(of, other), plain)

"""Agreement with people: each measure against a slow twin, and the cases that have no answer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rationale_twins import (
    curve_area,
    iou_f1,
    overlap_f1,
    people_similarity,
    ranked,
    runs,
    token_scores,
)

from rss_rl.ops.rationale_overlap import (
    SpanScores,
    best_tokens,
    document_scores,
    mean_overlap_f1,
    pair_overlap,
    precision_recall_area,
    ranked_scores,
    shuffled_selection,
    span_f1,
    span_scores,
    spans,
    top_share,
)
from rss_rl.types import Array

BITS = st.integers(1, 24).flatmap(
    lambda n: st.tuples(*(st.lists(st.booleans(), min_size=n, max_size=n) for _ in range(2)))
)


def array(*bits: int) -> Array:
    return np.array(bits, dtype=bool)


def drawn(seed: int, tokens: int) -> tuple[Array, Array]:
    """Scores with ties, and which tokens are wanted: some and not all."""
    draw = np.random.default_rng(seed)
    wanted = draw.random(tokens) < 0.4
    wanted[0], wanted[1] = True, False
    return draw.integers(0, 5, tokens) / 4, wanted


@given(BITS)
def test_tokens_and_spans_of_a_document(pair: tuple[list[bool], list[bool]]) -> None:
    kept, wanted = np.array(pair[0]), np.array(pair[1])
    found = document_scores(kept, wanted)
    if found is None:
        assert not kept.any()
        assert not wanted.any()
    else:
        assert found == pytest.approx(token_scores(*pair))
    assert [set(range(*span)) for span in spans(kept)] == runs(pair[0])
    scores = span_scores(kept, wanted)
    assert (scores.kept, scores.wanted) == (len(runs(pair[0])), len(runs(pair[1])))
    assert span_f1([scores]) == pytest.approx(iou_f1([pair]))


def test_a_span_that_overlaps_by_half_matches() -> None:
    wanted = array(0, 1, 1, 1, 1, 0)
    assert span_scores(array(0, 1, 1, 0, 0, 0), wanted) == SpanScores(1, 1, 1)
    assert span_scores(array(1, 1, 1, 0, 0, 0), wanted) == SpanScores(0, 1, 1)
    assert span_scores(array(0, 1, 0, 1, 0, 0), wanted) == SpanScores(0, 2, 1)
    assert span_f1([]) == span_f1([SpanScores(0, 3, 0)]) == 0.0


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("tokens", [2, 9, 40])
def test_areas(seed: int, tokens: int) -> None:
    scores, wanted = drawn(seed, tokens)
    area = precision_recall_area(scores, wanted)
    assert area == pytest.approx(curve_area(scores.tolist(), wanted.tolist()))


@given(BITS)
def test_spans_of_a_document_by_their_overlap(pair: tuple[list[bool], list[bool]]) -> None:
    kept, wanted = np.array(pair[0]), np.array(pair[1])
    assert mean_overlap_f1(kept, wanted) == pytest.approx(overlap_f1(*pair))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("tokens", [2, 9, 20, 73])
def test_what_a_ranking_is_worth(seed: int, tokens: int) -> None:
    scores, wanted = drawn(seed, tokens)
    found = ranked_scores(scores, wanted)
    assert found is not None
    assert found._asdict() == pytest.approx(ranked(scores.tolist(), wanted.tolist()))
    # Only the order of scores counts.
    assert ranked_scores(scores * 1e-9 - 5e-10, wanted) == found


def test_the_later_of_equal_scores_ranks_higher() -> None:
    scores = np.array([0.5, 0.9, 0.5, 0.5, 0.1])
    assert best_tokens(scores, 3).tolist() == [False, True, True, True, False]
    assert best_tokens(scores, 0).sum() == 0
    assert best_tokens(scores, 5).all()


def test_what_has_no_answer() -> None:
    none, some, every = array(0, 0), array(0, 1), array(1, 1)
    assert document_scores(none, none) is None
    assert document_scores(some, none) == document_scores(none, some) == (0.0, 0.0, 0.0)
    scores = np.array([0.1, 0.2])
    assert precision_recall_area(scores, none) is None
    assert pair_overlap([some]) is pair_overlap([every, every]) is None


def test_people_against_each_other() -> None:
    draw = np.random.default_rng(2)
    maps = [draw.random(30) < share for share in (0.2, 0.4, 0.5)]
    found = pair_overlap(maps)
    assert found is not None
    assert found[0] == pytest.approx(people_similarity([one.tolist() for one in maps]))
    pairs = [(a, b) for a in maps for b in maps if a is not b]
    f1 = [token_scores(a.tolist(), b.tolist())[2] for a, b in pairs]
    assert found[1] == pytest.approx(np.mean(f1))


def test_the_best_share_of_each_text() -> None:
    scores = np.array([[0.1, 0.9, 0.9, 0.5, 7.0], [0.3, 0.2, 7.0, 7.0, 7.0]])
    valid = np.arange(5) < np.array([4, 2])[:, None]
    assert top_share(scores, valid, 0.5).tolist() == [
        [False, True, True, False, False],
        [True, False, False, False, False],
    ]
    # One token at least, the earlier one of equals; and never padding.
    assert top_share(scores, valid, 0.0).sum(1).tolist() == [1, 1]
    assert top_share(scores, valid, 0.0)[0, 1]
    assert np.array_equal(top_share(scores, valid, 1.0), valid)


def test_a_selection_is_moved_within_its_text() -> None:
    draw = np.random.default_rng(0)
    valid = np.arange(30) < np.array([30, 11, 1])[:, None]
    selection = (draw.random((3, 2, 30)) < 0.3) & valid[:, None]
    moved = shuffled_selection(selection, valid, draw.random((3, 30)))
    assert (moved.sum(2) == selection.sum(2)).all()
    assert not (moved & ~valid[:, None]).any()
    assert (moved[0] != selection[0]).any()
    # Roles of a token move together.
    assert ((moved.sum(1) == 2).sum(1) == (selection.sum(1) == 2).sum(1)).all()

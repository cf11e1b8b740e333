"""MAP and MRR against values by hand and a twin that tries every order of tied answers."""

from __future__ import annotations

import choice_twins
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rss_rl.ops.scores import ranking_metrics


def metrics(*questions: tuple[list[float], list[int]]) -> dict[str, float]:
    """Of questions with scores and rights of their answers."""
    numbers = [n for n, (scores, _) in enumerate(questions) for _ in scores]
    scores = np.array([s for scores, _ in questions for s in scores], np.float32)
    right = np.array([r for _, rights in questions for r in rights], bool)
    return ranking_metrics(scores, right, np.array(numbers))


def test_questions_that_rank_nothing_count_in_the_second_pair_only() -> None:
    found = metrics(([1.0, 2.0], [1, 0]), ([1.0, 2.0], [0, 0]), ([1.0], [1]))
    assert found["map"] == found["mrr"] == 0.5
    assert found["map_all"] == found["mrr_all"] == pytest.approx((0.5 + 0 + 1) / 3)
    assert set(metrics(([1.0], [1]), ([1.0, 3.0], [0, 0]))) == {"map_all", "mrr_all"}


@given(
    questions=st.lists(
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=5),
        min_size=1,
        max_size=4,
    ),
    seed=st.integers(0, 100),
)
def test_equals_the_mean_over_every_order(
    questions: list[list[tuple[int, int]]], seed: int
) -> None:
    rows = [(q, s, r) for q, answers in enumerate(questions) for s, r in answers]
    mixed = np.array(rows)[np.random.default_rng(seed).permutation(len(rows))]
    found = ranking_metrics(mixed[:, 1].astype(float), mixed[:, 2] > 0, mixed[:, 0])
    each = [
        (*choice_twins.ranking(np.array([s for s, _ in a]), np.array([r for _, r in a])),
         0 < sum(r for _, r in a) < len(a))
        for a in questions
    ]  # fmt: skip
    telling = [row[:2] for row in each if row[2]]
    assert ("map" in found) is bool(telling)
    if telling:
        assert (found["map"], found["mrr"]) == pytest.approx(tuple(np.mean(telling, 0)))
    everything = tuple(np.mean([row[:2] for row in each], 0))
    assert (found["map_all"], found["mrr_all"]) == pytest.approx(everything)

"""Measures of predictions and selections."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rss_rl.ops.scores import (
    best_temperature,
    choice_metrics,
    class_metrics,
    precision_recall_f1,
    roc_auc,
    score_metrics,
)


def test_score_metrics_by_hand() -> None:
    predicted = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    gold = np.array([1.0, 3.0, 2.0, 5.0], np.float32)
    metrics = score_metrics(predicted, gold)
    assert metrics["mse"] == pytest.approx((0 + 1 + 1 + 1) / 4)
    assert metrics["pearson"] == pytest.approx(5.5 / np.sqrt(5.0 * 8.75))
    assert metrics["spearman"] == pytest.approx(1 - 6 * (0 + 1 + 1 + 0) / (4 * 15))


@pytest.mark.parametrize("true", [0.5, 1.0, 3.0])
def test_the_temperature_by_which_labels_were_drawn_is_found(true: float) -> None:
    draw = np.random.default_rng(0)
    logits = 2 * draw.normal(size=(4000, 3)).astype(np.float32)
    gold = (logits / true + draw.gumbel(size=logits.shape)).argmax(1)
    assert best_temperature(logits, gold) == pytest.approx(true, rel=0.06)


def test_rows_without_an_error_are_no_certainty() -> None:
    """Of few rows less than of many."""
    logits = np.array([[1.0, 0.0], [0.0, 1.0]] * 50, np.float32)
    found = [best_temperature(logits[:n], logits[:n].argmax(1)) for n in (2, 10, 100)]
    assert found == sorted(found, reverse=True)
    assert 0.1 < found[2] < found[0] < 1.0  # log-odds of 101 to 1, and of 3 to 1


@pytest.mark.parametrize(
    ("predicted", "gold"), [([2.0, 2.0], [1.0, 3.0]), ([1.0, 3.0], [2.0, 2.0]), ([1.0], [1.0])]
)
def test_undefined_correlations_are_left_out(predicted: list[float], gold: list[float]) -> None:
    assert set(score_metrics(np.array(predicted), np.array(gold))) == {"mse"}


def test_precision_recall_f1() -> None:
    assert precision_recall_f1(2, 4, 3) == pytest.approx((0.5, 2 / 3, 4 / 7))
    assert precision_recall_f1(0, 4, 3) == (0.0, 0.0, 0.0)
    assert precision_recall_f1(0, 0, 3) == (0.0, 0.0, 0.0)
    assert precision_recall_f1(0, 0, 0) == (0.0, 0.0, 0.0)


CLASSES = st.integers(0, 4)


@given(st.lists(st.tuples(CLASSES, CLASSES), min_size=1, max_size=30))
def test_class_metrics_equal_their_twin(pairs: list[tuple[int, int]]) -> None:
    predicted, gold = np.array(pairs).T
    hits = sum(p == g for p, g in pairs) / len(pairs)
    majority = max(sum(g == c for _, g in pairs) for c in range(5)) / len(pairs)
    f1s = []
    for c in {c for pair in pairs for c in pair}:
        both = sum(p == g == c for p, g in pairs)
        kept, wanted = sum(p == c for p, _ in pairs), sum(g == c for _, g in pairs)
        f1s.append(precision_recall_f1(both, kept, wanted)[2])
    found = class_metrics(predicted, gold)
    assert found == pytest.approx(
        {"accuracy": hits, "majority_accuracy": majority, "macro_f1": sum(f1s) / len(f1s)}
    )
    assert choice_metrics(predicted, gold) == pytest.approx(
        {"accuracy": hits, "majority_accuracy": majority}
    )


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=30))
def test_area_under_roc_is_the_share_of_pairs_in_order(scored: list[tuple[int, bool]]) -> None:
    """A pair of equal odds counts half, so that a constant has one half."""
    above = [s for s, right in scored if right]
    below = [s for s, right in scored if not right]
    odds, positive = (np.array(column) for column in zip(*scored, strict=True))
    found = roc_auc(odds.astype(np.float32), positive.astype(bool))
    if not above or not below:
        assert found is None
        return
    pairs = [1.0 if a > b else 0.5 if a == b else 0.0 for a in above for b in below]
    assert found == pytest.approx(sum(pairs) / len(pairs))


def test_classes_without_a_row_are_counted() -> None:
    """A share of right answers says nothing of them."""
    gold = np.array([0, 0, 2])
    assert class_metrics(gold, gold, classes=5)["absent_classes"] == 3
    assert "absent_classes" not in class_metrics(gold // 2, gold, classes=2)

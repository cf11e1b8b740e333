"""Measures of predictions and selections."""

from __future__ import annotations

import numpy as np
import pytest

from rss_rl.ops.scores import precision_recall_f1, score_metrics


def test_score_metrics_by_hand() -> None:
    predicted = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    gold = np.array([1.0, 3.0, 2.0, 5.0], np.float32)
    metrics = score_metrics(predicted, gold)
    assert metrics["mse"] == pytest.approx((0 + 1 + 1 + 1) / 4)
    assert metrics["pearson"] == pytest.approx(5.5 / np.sqrt(5.0 * 8.75))
    assert metrics["spearman"] == pytest.approx(1 - 6 * (0 + 1 + 1 + 0) / (4 * 15))


def test_single_precision_scores_are_measured_in_double_precision() -> None:
    random = np.random.default_rng(0)
    gold = (1000 + random.random(5000)).astype(np.float32)
    predicted = (gold + 0.3 * random.normal(size=5000)).astype(np.float32)
    wanted = np.corrcoef(predicted.astype(np.float64), gold.astype(np.float64))[0, 1]
    assert score_metrics(predicted, gold)["pearson"] == pytest.approx(wanted, abs=1e-12)


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

"""Scores of single classes, against counts by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from rss_rl.data.manifest import SplitInfo
from rss_rl.results.scores import calibration, calibration_error, class_scores, coverage
from rss_rl.results.sentences import accuracy_interval, interval_sentence


def test_each_class_is_counted() -> None:
    predictions = pd.DataFrame({"label": [0, 0, 0, 1, 1], "predicted": [0, 0, 1, 0, 1]})
    found = class_scores(predictions, ["no", "yes", "rare"])
    assert found["rows"].tolist() == [3, 2, 0]
    assert found[["no", "yes", "rare"]].to_numpy().tolist() == [[2, 1, 0], [1, 1, 0], [0, 0, 0]]
    assert found["precision"].tolist()[:2] == pytest.approx([2 / 3, 1 / 2])
    assert found["recall"].tolist()[:2] == pytest.approx([2 / 3, 1 / 2])
    assert np.isnan(found.loc["rare", ["precision", "recall"]].astype(float)).all()


def test_confidence_is_compared_with_accuracy() -> None:
    predictions = pd.DataFrame(
        {"confidence": [0.95, 1.0, 0.93, 0.61, 0.69], "error": [False, False, True, True, False]}
    )
    bins = calibration(predictions)
    assert bins["rows"].tolist() == [2, 3]
    assert bins["accuracy"].tolist() == pytest.approx([1 / 2, 2 / 3])
    assert bins["confidence"].tolist() == pytest.approx([0.65, 0.96])
    by_hand = (2 * abs(0.65 - 1 / 2) + 3 * abs(0.96 - 2 / 3)) / 5
    assert calibration_error(bins) == pytest.approx(by_hand)


def test_the_least_certain_are_left_out_first() -> None:
    sure = [0.99, 0.95, 0.95, 0.9, 0.8, 0.7, 0.6, 0.55, 0.5, 0.5]
    wrong = [0, 0, 1, 0, 0, 1, 0, 1, 1, 0]
    predictions = pd.DataFrame({"confidence": sure[::-1], "error": np.array(wrong[::-1], bool)})
    curve = coverage(predictions)
    assert curve["least"].tolist() == [*dict.fromkeys(sure)]  # two of a kind are left out together
    for least, share, accuracy in curve.to_numpy():
        kept = [not error for error, one in zip(wrong, sure, strict=True) if one >= least]
        assert share == pytest.approx(len(kept) / len(sure))
        assert accuracy == pytest.approx(np.mean(kept))
    assert coverage(predictions[:1])["coverage"].tolist() == [1]


def test_the_interval_is_wilsons() -> None:
    # (p + z^2 / 2n -+ z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n), Wilson (1927)
    p, n, z = 0.8, 200, 1.959964
    middle, off = p + z**2 / (2 * n), z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    wanted = (middle - off) / (1 + z**2 / n), (middle + off) / (1 + z**2 / n)
    assert accuracy_interval(p, n) == pytest.approx(wanted, abs=1e-6)
    info = SplitInfo.model_construct(rows=4 * n, texts=n)  # copies make it no narrower
    said = interval_sentence({"all": {"accuracy": p}}, info, "test")
    assert said is not None
    assert "800 rows of 200 texts" in said
    assert f"{wanted[0]:.1%} to {wanted[1]:.1%}" in said

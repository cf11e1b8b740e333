"""The measures of a run, and that of kept tokens against marked ones, on pairs."""

from __future__ import annotations

import numpy as np
import pytest

from rss_rl.config import RunConfig
from rss_rl.metrics.metrics import marked_counts, measure_names, measured
from rss_rl.types import LabelSpec

CLASSES = LabelSpec("classes", ("a", "b"))


def test_a_run_reports_what_fits(tiny_config: RunConfig) -> None:
    found = measure_names(tiny_config, CLASSES, questions=False, rationales=True)
    assert {"accuracy", "roc_auc", "rationale_f1"} <= set(found)
    assert not {"pearson", "map"} & set(found)
    assert found[0] == "accuracy"
    scores = LabelSpec("score", (), 0.0, 1.0)
    found = measure_names(tiny_config, scores, questions=True, rationales=False)
    assert found == ["pearson", "spearman", "mse"]


def test_of_a_pair_the_text_without_marks_does_not_count() -> None:
    marks = [np.array([[True, False, True]]), np.array([[False, False]])]
    kept = [np.array([[[True, True, False]] * 2]), np.array([[[True, True]] * 2])]
    moved = [np.array([[[False, True, True]] * 2]), np.array([[[True, True]] * 2])]
    counts = marked_counts(marks, kept, moved)
    assert counts.tolist() == [[1, 1, 2, 2]]
    assert marked_counts(marks[1:], kept[1:], moved[1:]).tolist() == [[0, 0, 2, 0]]
    found = measured(CLASSES, {"marked": counts})
    assert found == pytest.approx(
        dict.fromkeys([f"rationale_{n}" for n in ("precision", "recall", "f1", "f1_random")], 0.5)
    )


def test_a_split_that_nobody_marked_has_no_agreement() -> None:
    nothing, kept = [np.zeros((1, 2), bool)], [np.ones((1, 2, 2), bool)]
    assert measured(CLASSES, {"marked": marked_counts(nothing, kept, kept)}) == {}

"""The metrics of a run, and that of kept tokens against marked ones, on pairs."""

from __future__ import annotations

import numpy as np

from rss_rl.config import RunConfig
from rss_rl.metrics.metrics import METRICS, Scored
from rss_rl.metrics.run_metrics import RunMetrics
from rss_rl.types import Batch, LabelSpec

CLASSES = LabelSpec("classes", ("a", "b"))


def test_of_a_pair_a_text_without_a_mark_does_not_count() -> None:
    valid = np.ones((2, 4), dtype=bool)
    marks = np.array([[1, 1, 0, 0], [0, 0, 0, 1]], dtype=bool)
    kept = np.repeat(np.array([[1, 0, 1, 0], [0, 0, 1, 1]], dtype=bool)[:, None], 2, axis=1)
    other = np.array([[0, 0, 0, 0], [1, 0, 0, 0]], dtype=bool)  # of the second example alone
    metric = METRICS["rationales"].build(CLASSES)
    ids = valid.astype(np.int64)
    batch = Batch(np.arange(2), (ids, ids), (valid, valid), np.zeros(2), (marks, other))
    metric.add(Scored(batch, (kept, kept), (kept, kept)))
    scores = metric.result()
    assert scores["rationale_precision"] == 2 / 6  # 4 of text 1, 2 of the second example's text 2
    assert scores["rationale_recall"] == 2 / 4


def test_a_run_reports_what_fits_or_what_it_is_asked_for(tiny_config: RunConfig) -> None:
    found = RunMetrics(tiny_config, CLASSES, questions=False)
    assert {"accuracy", "roc_auc", "rationale_f1"} <= set(found.names)
    assert not {"pearson", "map"} & set(found.names)
    assert found.main == "accuracy"
    asked = tiny_config.evaluation.model_copy(update={"metrics": ("ranking", "rationales")})
    few = RunMetrics(tiny_config.model_copy(update={"evaluation": asked}), CLASSES)
    assert (few.names[0], few.main) == ("map", "reward")
    assert "accuracy" not in few.names

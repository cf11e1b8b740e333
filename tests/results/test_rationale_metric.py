"""The metric of kept tokens against marked ones, on pairs."""

from __future__ import annotations

import numpy as np

from rss_rl.components import NoOptions, find_component
from rss_rl.metrics.protocol import MetricSetup, Scored
from rss_rl.types import Batch, LabelSpec


def test_of_a_pair_a_text_without_a_mark_does_not_count() -> None:
    valid = np.ones((2, 4), dtype=bool)
    marks = np.array([[1, 1, 0, 0], [0, 0, 0, 1]], dtype=bool)
    kept = np.repeat(np.array([[1, 0, 1, 0], [0, 0, 1, 1]], dtype=bool)[:, None], 2, axis=1)
    other = np.array([[0, 0, 0, 0], [1, 0, 0, 0]], dtype=bool)  # of the second example alone
    component = find_component("metric", "rationales")
    metric = component.build(MetricSetup(LabelSpec("classes", ("a", "b")), 2), NoOptions())
    ids = valid.astype(np.int64)
    batch = Batch(np.arange(2), (ids, ids), (valid, valid), np.zeros(2), (marks, other))
    metric.add(Scored(batch, (kept, kept), (kept, kept)))
    scores = metric.result()
    assert scores["rationale_precision"] == 2 / 6  # 4 of text 1, 2 of the second example's text 2
    assert scores["rationale_recall"] == 2 / 4

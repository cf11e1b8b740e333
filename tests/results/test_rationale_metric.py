"""The metrics of a run, and that of kept tokens against marked ones, on pairs."""

from __future__ import annotations

from rss_rl.config import RunConfig
from rss_rl.metrics.run_metrics import RunMetrics
from rss_rl.types import LabelSpec

CLASSES = LabelSpec("classes", ("a", "b"))


def test_a_run_reports_what_fits_or_what_it_is_asked_for(tiny_config: RunConfig) -> None:
    found = RunMetrics(tiny_config, CLASSES, questions=False)
    assert {"accuracy", "roc_auc", "rationale_f1"} <= set(found.names)
    assert not {"pearson", "map"} & set(found.names)
    assert found.main == "accuracy"
    asked = tiny_config.evaluation.model_copy(update={"metrics": ("ranking", "rationales")})
    few = RunMetrics(tiny_config.model_copy(update={"evaluation": asked}), CLASSES)
    assert (few.names[0], few.main) == ("map", "reward")
    assert "accuracy" not in few.names

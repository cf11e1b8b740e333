"""A target share: reached, and no other lambda after a stop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.compute as pc
import pytest
from tiny_runs import Outcome, stop_and_resume, tiny_source

from rss_rl.config import RunConfig
from rss_rl.data.prepare import prepare
from rss_rl.logs.metrics import read_metrics
from rss_rl.runs.checkpoint import load_checkpoint
from rss_rl.training.run import Finished, train
from rss_rl.training.trainer import Updated

STEERED = {"target_share": 0.4}


def test_lambda_moves_is_reported_and_outlives_a_stop(
    tiny: Callable[..., RunConfig], tmp_path: Path
) -> None:
    config = tiny(reward=STEERED, evaluation={"all_tokens": False})
    list(train(config, tmp_path / "run"))
    table = read_metrics(tmp_path / "run")
    tags = ("reward/lambda", "selection/share_error", "selection/margin_heads")
    found = {t: table.filter(pc.equal(table["tag"], t))["value"].to_pylist() for t in tags}
    assert len({len(values) for values in found.values()}) == 1
    assert len(set(found["reward/lambda"])) > 5
    stop_and_resume(config, tmp_path / "stopped", 12)
    Outcome.read(tmp_path / "stopped").assert_equals(Outcome.read(tmp_path / "run"))


def test_reached(tiny: Callable[..., RunConfig], tmp_path: Path) -> None:
    """On rows that no choice was made by too, and by both roles."""
    # Enough words and rows for two points of a share to be more than one word, or chance.
    rows = {"train": 480, "dev": 960, "test": 960}
    prepare(tiny_source(rows, tuple(f"word{n}" for n in range(200))), tmp_path / "wide", dim=6)
    phases = [
        {"name": "warm-up", "supervised": True, "selection": "all", "steps": 20},
        {"name": "co-train", "supervised": True, "policy": True, "steps": 260},
    ]
    config = tiny(
        data=str(tmp_path / "wide"),
        batch_size=32,
        phases=phases,
        reward={"target_share": 0.25},
        evaluation={"all_tokens": False, "every": 40},
        checkpoint={"every": 100},
        learner={"policy": {"learning_rate": 0.003}},
    )
    events = list(train(config, tmp_path / "run"))
    assert isinstance(events[-1], Finished)
    for scores in events[-1].report["splits"].values():
        found = scores["thresholded"]
        assert found["kept"] == pytest.approx(0.25, abs=0.02)
        assert min(found["heads_kept"], found["dependents_kept"]) > 0.06
    last = [e.scalars for e in events if isinstance(e, Updated) and e.phase == "co-train"]
    settled = [scalars["selection/share_error"] for scalars in last[-60:]]
    assert sum(map(abs, settled)) / len(settled) < 0.05
    assert load_checkpoint(tmp_path / "run").state["share"]["gap"] != 0  # dev was looked at

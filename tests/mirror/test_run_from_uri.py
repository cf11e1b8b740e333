"""A run whose data lie at a URI gives the numbers of one whose data lie in a directory."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from kernel_cache import share_kernels

from rss_rl.api.run import Run
from rss_rl.config import RunConfig
from rss_rl.data.store import Prepared
from rss_rl.envs.task import make_task
from rss_rl.errors import DataError
from rss_rl.results.scores import score_run
from rss_rl.training.run import Finished, train


def report_of(config: RunConfig, path: Path) -> dict[str, Any]:
    events = list(train(config, path))
    assert isinstance(events[-1], Finished)
    report = events[-1].report
    return {name: report[name] for name in ("splits", "steps", "best_step")}


def test_a_run_reads_its_data_from_a_uri(
    tmp_path: Path, tiny: Prepared, tiny_config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RSS_RL_CACHE", str(share_kernels(tmp_path / "cache")))
    uri = Path(shutil.copytree(tiny.folder, tmp_path / "bucket")).as_uri()
    evaluation = tiny_config.evaluation.model_copy(update={"all_tokens": False})
    short = {"phases": tiny_config.phases[2:], "evaluation": evaluation}
    config = tiny_config.model_copy(update=short)
    here = report_of(config, tmp_path / "here")
    away = report_of(config.model_copy(update={"data": uri}), tmp_path / "away")
    assert away == here
    metrics = score_run(tmp_path / "away", "test", ["thresholded"])
    assert metrics["thresholded"] == here["splits"]["test"]["thresholded"]
    # Without a copy here only who trusts the run goes where it says.
    monkeypatch.setenv("RSS_RL_CACHE", str(share_kernels(tmp_path / "empty")))
    run = Run(tmp_path / "away")
    for use in (lambda: run.evaluate(modes=["thresholded"]), run.resume):
        with pytest.raises(DataError, match="an address that only the run names"):
            use()
    assert not (tmp_path / "empty" / "data").exists()
    trusted = Run(tmp_path / "away", trust_plugins=True)
    assert trusted.evaluate(modes=["thresholded"]) == metrics
    task = make_task(prepared=uri, reward_model=len, split="dev")
    assert (len(task.examples), task.vocabulary_size) == (20, len(tiny.vocabulary))

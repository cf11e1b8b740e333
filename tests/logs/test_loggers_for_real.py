"""Trackers offline, with their real packages, which `make loggers` installs."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from rss_rl.components import find_component
from rss_rl.logs.logger import LoggedRun
from rss_rl.logs.metrics import MetricsWriter

SETTINGS = {"seed": 3, "policy": {"name": "rss", "options": {"hidden": 4}}}


def stop_and_resume(name: str, folder: Path) -> None:
    """A run of three updates, resumed from the checkpoint of the second."""
    component = find_component("logger", name)
    failures: list[tuple[str, str]] = []
    for step, updates in ((None, (1, 2, 3)), (2, (3, 4))):
        run = LoggedRun("data_rss_seed-3", folder, SETTINGS, step)
        logger = component.build(run, component.parse({}))
        with MetricsWriter(
            folder, step, loggers=[logger], failed=lambda *what: failures.append(what)
        ) as writer:
            for update in updates:
                writer.scalars(update, {"train/loss": 1 / update})
                writer.text(update, "selection/examples", "a **b**")
    assert failures == []


def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="make loggers")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)
    stop_and_resume("mlflow", tmp_path / "run")
    client = mlflow.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("rss-rl").experiment_id])
    assert run.info.run_name == "data_rss_seed-3"
    assert run.info.status == "FINISHED"
    assert run.data.params["policy.options.hidden"] == "4"
    history = client.get_metric_history(run.info.run_id, "train/loss")
    assert {point.step: point.value for point in history} == {1: 1, 2: 1 / 2, 3: 1 / 3, 4: 1 / 4}
    assert client.list_artifacts(run.info.run_id, "selection")


def test_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="make loggers")
    monkeypatch.setenv("WANDB_MODE", "offline")
    stop_and_resume("wandb", tmp_path / "run")
    name = (tmp_path / "run" / "wandb-id").read_text()
    files = list((tmp_path / "run" / "wandb").glob(f"offline-run-*-{name}/*.wandb"))
    assert files
    assert any(b"train/loss" in file.read_bytes() for file in files)


def test_trackio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    pytest.importorskip("trackio", reason="make loggers")
    stop_and_resume("trackio", tmp_path / "run")
    with sqlite3.connect(tmp_path / "rss-rl.db") as database:
        rows = database.execute("SELECT run_name, step FROM metrics ORDER BY step").fetchall()
    assert {name for name, _ in rows} == {"data_rss_seed-3"}
    assert {step for _, step in rows} == {1, 2, 3, 4}

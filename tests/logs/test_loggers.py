"""Loggers: what they get, one that fails, and how each of the built-in ones is called."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock, call

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from tiny_runs import tiny_tree

from rss_rl.components import find_component
from rss_rl.config import parse_config
from rss_rl.errors import ConfigError
from rss_rl.logs.logger import LoggedRun, RunLogger, open_loggers
from rss_rl.logs.metrics import MetricsWriter, read_metrics
from rss_rl.logs.tensorboard import picture, write_hparams

SETTINGS = {"seed": 3, "policy": {"name": "rss", "options": {"hidden": 4}}}


def opened(name: str, folder: Path, step: int | None = None, **options: Any) -> RunLogger:
    component = find_component("logger", name)
    run = LoggedRun("data_rss_seed-3", folder, SETTINGS, step)
    made: RunLogger = component.build(run, component.parse(options))
    return made


class Recorder(RunLogger):
    def __init__(self) -> None:
        self.taken: list[tuple[int, dict[str, float]]] = []
        self.ends: list[bool] = []

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self.taken.append((step, dict(values)))

    def close(self, failed: bool) -> None:
        self.ends.append(failed)


class Failing(RunLogger):
    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        raise ConnectionError("no answer")


def test_a_logger_gets_what_is_finite(tmp_path: Path) -> None:
    logger = Recorder()
    with MetricsWriter(tmp_path, loggers=[logger]) as writer:
        writer.scalars(3, {"train/loss": np.float32(1), "policy/loss": float("inf")})
    assert logger.taken == [(3, {"train/loss": 1.0, "metrics/non_finite": 1.0})]
    assert logger.ends == [False]


def test_training_goes_on_without_a_logger_that_raises(tmp_path: Path) -> None:
    logger, told = Recorder(), []
    with MetricsWriter(
        tmp_path, loggers=[Failing(), logger], failed=lambda *what: told.append(what)
    ) as writer:
        writer.scalars(1, {"train/loss": 1.0})
        writer.scalars(2, {"train/loss": 2.0})
    assert told == [("Failing", "no answer")]
    assert [step for step, _ in logger.taken] == [1, 2]
    assert read_metrics(tmp_path)["step"].to_pylist() == [1, 2]


def test_a_failed_run_is_said(tmp_path: Path) -> None:
    logger = Recorder()
    with pytest.raises(KeyError), MetricsWriter(tmp_path, loggers=[logger]):
        raise KeyError
    assert logger.ends == [True]


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    config = parse_config(tiny_tree(tmp_path) | {"loggers": ["tensorboard", "wandb"]}, where="t")
    with pytest.raises(ConfigError, match="'wandb' cannot log this run.*pip install wandb"):
        open_loggers(config, tmp_path, None, lambda name, cause: None)


def test_a_run_resumes_without_a_logger_that_cannot_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    config = parse_config(tiny_tree(tmp_path) | {"loggers": ["wandb", "tensorboard"]}, where="t")
    told: list[str] = []
    (left,) = open_loggers(config, tmp_path, 3, lambda name, cause: told.append(name))
    assert (type(left).__name__, told) == ("TensorBoardLogger", ["wandb"])
    left.close(failed=False)


def events_in(folder: Path) -> EventAccumulator:
    return EventAccumulator(str(folder), {"tensors": 0, "scalars": 0}).Reload()


def test_the_reward_in_tensorboard_is_without_a_price_that_moves(tmp_path: Path) -> None:
    logger = opened("tensorboard", tmp_path)
    fixed = {"reward/total": -1.0, "reward/sparsity_cost": 0.25}
    logger.scalars(1, fixed)
    logger.scalars(2, fixed | {"reward/lambda": 0.5})
    logger.close(failed=False)
    found = events_in(tmp_path / "tensorboard" / "data_rss_seed-3")
    rewards = found.Scalars("0_main/reward_without_price")
    assert [point.value for point in rewards] == [-1.0, -0.75]
    assert [point.value for point in found.Scalars("0_main/price")] == [0.5]


def test_a_picture_has_kept_words_in_black() -> None:
    kept, other = picture("**star**"), picture("star &#42;")
    assert (kept.min(), other.min()) == (0, 0x9A)
    assert picture("star").shape == kept.shape
    assert len(picture("star " * 100)) > len(kept)
    assert len(picture("star\n" * 999)) < 2000


def test_settings_of_runs_in_tensorboards_tab(tmp_path: Path) -> None:
    write_hparams(tmp_path, {"cr/rss/seed-0": ({"row": "rss", "seed": 0}, {"accuracy": 0.5})})
    found = events_in(tmp_path / "cr" / "rss" / "seed-0")
    begun = found.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    named = HParamsPluginData.FromString(begun).session_start_info.hparams
    assert {key: value.string_value or value.number_value for key, value in named.items()} == {
        "row": "rss",
        "seed": 0.0,
    }
    assert [point.value for point in found.Scalars("accuracy")] == [0.5]


def fake(monkeypatch: pytest.MonkeyPatch, name: str) -> MagicMock:
    package = MagicMock(ModuleType(name))
    monkeypatch.setitem(sys.modules, name, package)
    return package


def test_wandb_goes_on_with_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = fake(monkeypatch, "wandb")
    package.init = MagicMock()
    logger = opened("wandb", tmp_path, project="reviews")
    told = dict(package.init.call_args.kwargs)
    name = told.pop("id")
    assert told == {
        "project": "reviews",
        "name": "data_rss_seed-3",
        "resume": "allow",
        "config": SETTINGS,
        "dir": tmp_path,
    }
    logger.scalars(7, {"train/loss": 0.5})
    logger.close(failed=True)
    run = package.init.return_value
    assert run.log.call_args_list == [call({"update": 7, "train/loss": 0.5})]
    assert run.finish.call_args_list == [call(exit_code=1)]
    opened("wandb", tmp_path, step=4)
    assert package.init.call_args.kwargs["id"] == name
    opened("wandb", tmp_path)  # the run was replaced
    assert package.init.call_args.kwargs["id"] != name


def test_mlflow_goes_on_with_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = fake(monkeypatch, "mlflow")
    package.MlflowClient, package.entities = MagicMock(), MagicMock()
    package.entities.Metric = package.entities.Param = lambda *values: values
    client = package.MlflowClient.return_value
    client.create_run.return_value.info.run_id = "first"
    client.search_runs.return_value = []
    logger = opened("mlflow", tmp_path)
    params = [("seed", "3"), ("policy.name", "rss"), ("policy.options.hidden", "4")]
    assert client.log_batch.call_args_list == [call("first", params=params)]
    logger.scalars(7, {"train/loss": 0.5})
    run, metrics = client.log_batch.call_args.args, client.log_batch.call_args.kwargs["metrics"]
    assert (run, metrics[0][:2], metrics[0][3]) == (("first",), ("train/loss", 0.5), 7)
    logger.close(failed=False)
    assert client.set_terminated.call_args_list == [call("first", "FINISHED")]
    client.search_runs.return_value = [MagicMock()]
    client.search_runs.return_value[0].info.run_id = "earlier"
    opened("mlflow", tmp_path, step=4).scalars(8, {"train/loss": 0.5})
    assert client.log_batch.call_args.args == ("earlier",)
    assert client.create_run.call_count == 1


def test_trackio_goes_on_with_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = fake(monkeypatch, "trackio")
    package.init = MagicMock()
    logger = opened("trackio", tmp_path, step=2)
    assert package.init.call_args.kwargs["resume"] == "allow"
    assert package.init.call_args.kwargs["config"]["policy.options.hidden"] == "4"
    logger.scalars(7, {"train/loss": 0.5})
    logger.close(failed=False)
    run = package.init.return_value
    assert run.log.call_args_list == [call({"train/loss": 0.5}, step=7)]
    assert run.finish.call_count == 1

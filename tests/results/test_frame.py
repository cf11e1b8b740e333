"""The frame of runs: it holds what their files hold, and groups what differs only in the seed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tiny_runs import tiny_source, tiny_tree

from rss_rl.config import RunConfig
from rss_rl.data.prepare import prepare
from rss_rl.data.store import open_prepared
from rss_rl.errors import CheckpointError
from rss_rl.results.frame import grouped, is_setting, runs_frame, score_names, with_groups
from rss_rl.results.tables import modes_frame, shown_scores
from rss_rl.runs.run_directory import RunDirectory
from rss_rl.training.run import provenance


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "tiny"
    prepare(tiny_source(), folder, dim=6)
    return folder


def make_run(
    folder: Path, data: Path, seed: int, accuracy: float | None = None, rate: float = 0.01
) -> Path:
    """A run's files, with a report if there is an accuracy."""
    tree = tiny_tree(data) | {"seed": seed}
    tree["learner"]["policy"]["learning_rate"] = rate
    config = RunConfig.model_validate(tree).model_dump(mode="json")
    path = folder / f"rate-{rate}-seed-{seed}-{data.name}"
    with RunDirectory.create(path, config) as run:
        run.note_provenance(provenance(open_prepared(str(data))))
        if accuracy is not None:
            scores = {"accuracy": accuracy, "reward": -1.0, "roc_auc": None if seed else 0.5}
            costs = {"steps": 27, "best_step": 20 + seed, "parameters": 900}
            costs |= {"wall_seconds": 1.5, "examples_per_second": 80.0}
            splits = {"test": {"thresholded": scores, "all": scores}}
            run.write_report({"splits": splits, "seed": seed, **costs})
    return path


def test_a_line_a_run_split_and_mode(tmp_path: Path, data: Path) -> None:
    paths = [make_run(tmp_path, data, 0, 0.25), make_run(tmp_path, data, 1)]
    frame = runs_frame(paths)
    assert frame["run"].tolist() == [str(paths[0])] * 2 + [str(paths[1])]
    assert frame["finished"].tolist() == [True, True, False]
    assert frame["mode"].tolist()[:2] == ["thresholded", "all"]
    assert frame["mode"].isna().tolist() == [False, False, True]
    assert score_names(frame) == ["accuracy", "roc_auc", "reward"]
    assert frame["accuracy"].tolist()[:2] == [0.25, 0.25]
    first = frame.iloc[0]
    assert (first["seed"], first["data"], first["steps"]) == (0, str(data), 27)
    assert first["learner.policy.learning_rate"] == 0.01
    assert json.loads(first["learner.policy.betas"]) == [0.9, 0.999]
    flat = set(filter(is_setting, frame.columns))
    assert {"phases.0.name", "batch_size", "reward.sparsity_cost"} <= flat


def test_groups_are_runs_that_differ_in_the_seed(tmp_path: Path, data: Path) -> None:
    runs = [(0, 0.25, 0.01), (0, 0.5, 0.1), (1, 0.75, 0.01), (2, None, 0.01)]
    frame = runs_frame([make_run(tmp_path, data, *run) for run in runs])
    assert with_groups(frame)["group"].tolist() == [1, 1, 2, 2, 1, 1, 1]
    both = grouped(frame)
    chosen = both[both["mode"] == "thresholded"]
    assert chosen["runs"].tolist() == [2, 1]
    assert chosen["accuracy"].tolist() == [0.5, 0.5]
    np.testing.assert_allclose(chosen["accuracy_sd"], [0.5 / np.sqrt(2), np.nan])
    assert chosen["best_step"].tolist() == [20.5, 20.0]
    assert chosen["learner.policy.learning_rate"].tolist() == [0.01, 0.1]
    assert "seed" not in chosen
    # One of the runs has no area under the curve, so there is no mean over both.
    np.testing.assert_array_equal(chosen["roc_auc"], [np.nan, 0.5])
    assert score_names(both) == score_names(frame)


def test_data_are_told_apart_by_what_they_hold(tmp_path: Path, data: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(data, moved)
    frame = runs_frame([make_run(tmp_path, data, 0, 0.5), make_run(tmp_path, moved, 1, 0.5)])
    assert grouped(frame)["runs"].tolist() == [2, 2]


def test_a_run_given_twice_is_refused(tmp_path: Path, data: Path) -> None:
    path = make_run(tmp_path, data, 3, 0.5)
    with pytest.raises(CheckpointError, match="two runs of one configuration have seed=3"):
        grouped(runs_frame([path, path]))


@pytest.mark.parametrize("damage", [{}, {"splits": 3}, {"splits": {"test": {"all": {"a": "b"}}}}])
def test_a_damaged_report_is_named(tmp_path: Path, data: Path, damage: dict[str, object]) -> None:
    path = make_run(tmp_path, data, 0, 0.5)
    report = RunDirectory.open(path).read_report()
    broken = {name: value for name, value in report.items() if name != "splits"} | damage
    (path / "report.json").write_text(json.dumps(broken))
    with pytest.raises(CheckpointError, match=r"report.json: damaged"):
        runs_frame([path])


@pytest.mark.parametrize(("heads", "shown"), [(0.3, False), (0.2, True)])
def test_roles_are_shown_where_they_differ_from_what_is_kept(heads: float, shown: bool) -> None:
    """A linear classifier beside the run has no roles."""
    own = {"loss": 0.3, "kept": 0.3, "heads_kept": heads, "dependents_kept": 0.3}
    found = shown_scores(modes_frame({"thresholded": own, "linear": {"kept": 1.0}}))
    assert found == ["loss", "kept", *(["heads_kept", "dependents_kept"] if shown else [])]

"""A search on Ray Tune: what it leaves behind, killed and resumed, and what it refuses."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import time
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tiny_runs import command_line, tiny_tree
from typer.testing import CliRunner, Result

from rss_rl.cli.main import app
from rss_rl.errors import CheckpointError, NonFiniteError
from rss_rl.json_files import read_json
from rss_rl.results.tuning.report import write_search
from rss_rl.results.tuning.space import load_base, load_space
from rss_rl.results.tuning.study import Study, open_study
from rss_rl.results.tuning.trial import TrialRecord, points, read_record, train_trial
from rss_rl.runs.checkpoint import load_checkpoint
from rss_rl.training.run import train

DEADLINE_S = 90
RATES = [0.01, 0.03, 0.1]
SPACE = {
    "learner.supervised.learning_rate": {"choice": RATES},
    "sampler.selections": {"choice": [2, 4]},
}
PHASES = [
    {"name": "warm-up", "supervised": True, "selection": "all", "steps": 6},
    {"name": "co-train", "supervised": True, "policy": True, "steps": 24},
]


def write_files(place: Path, data: Path, **changes: Any) -> tuple[Path, Path]:
    """A search space, and a configuration of 24 updates that count, scored at every second."""
    tree = tiny_tree(data) | {"phases": PHASES}
    tree["sampler"] |= {"shards": 1}
    tree["evaluation"] |= {"every": 2}
    space, config = place / "space.yaml", place / "tiny.yaml"
    space.write_text(json.dumps(SPACE | changes))
    config.write_text(json.dumps(tree))
    return space, config


def run_tune(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["tune", *map(str, arguments)])


def study_of(place: Path, data: Path, out: str = "out", seeds: int = 1, **changes: Any) -> Study:
    space, config = write_files(place, data, **changes)
    base = load_base(config)
    return open_study(place / out, load_space(space, base), base, seeds)


def all_records(study: Study, count: int) -> list[TrialRecord]:
    """Trains trials in this process, without a scheduler."""
    made = zip(range(count), study.trials(), strict=False)
    return [train_trial(trial, lambda: False, lambda _: None) for _, trial in made]


@pytest.fixture(scope="module")
def trained(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Three trials, each in one go."""
    study = study_of(tmp_path_factory.mktemp("tune"), prepared)
    all_records(study, 3)
    return study


def test_trials_are_ordinary_runs_without_test(trained: Study, tmp_path: Path) -> None:
    first, second = trained.records()[:2]
    assert first.settings == {}
    assert first.state == "finished"
    assert first.core_s > 0
    run = trained.folder / "trials" / "000" / "seed-0"
    assert list(read_json(run / "report.json", "")["splits"]) == ["dev"]
    assert read_json(run / "status.json", "")["state"] == "finished"
    assert [point.progress for point in points(first)] == list(range(0, 25, 2))
    report = read_json(run / "report.json", "")["splits"]["dev"]["thresholded"]
    assert points(first)[-1].best == pytest.approx(report["accuracy"])
    assert points(first)[-1].best_kept == pytest.approx(report["kept"])
    config = trained.base.configure(second.settings)
    for _ in train(config, tmp_path / "alone"):
        pass
    alone, there = (
        load_checkpoint(path, "best")
        for path in (tmp_path / "alone", trained.folder / "trials" / "001" / "seed-0")
    )
    assert alone.step == there.step
    for name, tensor in alone.tensors.items():
        np.testing.assert_array_equal(tensor, there.tensors[name], err_msg=name)


def test_seeds_side_by_side_are_runs_of_their_own(
    trained: Study, prepared: Path, tmp_path: Path
) -> None:
    study = study_of(tmp_path, prepared, seeds=2)
    (record,) = all_records(study, 1)
    one = trained.records()[0].evaluations[0]
    assert record.evaluations[0] == one
    assert record.evaluations[1] != one
    mean = points(record)[-1]
    assert mean.best == pytest.approx(
        sum(
            points(TrialRecord(0, {}, evaluations=[own]))[-1].best or 0
            for own in record.evaluations
        )
        / 2
    )


def test_files(trained: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    files = {path.name: path for path in write_search(trained, shown.append)}
    assert set(files) == {"tune.md", "trials.csv", "tune.png", "base.yaml", "best.yaml"}
    assert files["tune.md"].read_text() == shown[0]
    assert "0 (as it is)" in shown[0]
    assert "`learner.supervised.learning_rate`" in shown[0]
    assert "after 4 updates" in shown[0]
    assert files["tune.png"].read_bytes()[:4] == b"\x89PNG"
    rows = list(csv.DictReader(StringIO(files["trials.csv"].read_text())))
    assert sorted(row["trial"] for row in rows) == ["0", "1", "2"]
    best = [float(row["dev_accuracy"]) for row in rows]
    assert best == sorted(best, reverse=True)
    monkeypatch.chdir(tmp_path)
    settings = ["phases.co-train.steps=2", "evaluation.all_tokens=false", "sampler.backend=local"]
    command = ["train", str(files["best.yaml"]), *settings, "--run-dir", "again"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    now = yaml.safe_load((tmp_path / "again" / "config.yaml").read_text())
    wanted = trained.records()[int(rows[0]["trial"])].settings
    assert now["sampler"]["selections"] == wanted.get("sampler.selections", 2)


def test_another_search_is_refused(trained: Study, prepared: Path, tmp_path: Path) -> None:
    space, config = write_files(tmp_path, prepared)
    out = ["--out", trained.folder, "--only-read"]
    result = run_tune(space, config, "batch_size=8", *out)
    assert "other values of configuration batch_size" in result.output
    result = run_tune(space, config, "--seeds", "2", *out)
    assert "other values of seeds" in result.output
    space, config = write_files(tmp_path, prepared, **{"model.dropout": {"uniform": [0, 0.5]}})
    assert "other values of space model.dropout" in run_tune(space, config, *out).output
    with (
        trained.locked(),
        pytest.raises(CheckpointError, match="another process is searching there"),
        trained.locked(),
    ):
        pass


def test_only_read_and_dry_run_write_nothing(prepared: Path, tmp_path: Path) -> None:
    files = write_files(tmp_path, prepared)
    result = run_tune(*files, "--out", tmp_path / "out", "--dry-run")
    assert result.exit_code == 0, result.output
    assert "000  the configuration as it is" in result.output
    assert "stopped: 4, 12" in result.output
    assert not (tmp_path / "out").exists()


def test_a_trial_that_fails_is_reported_and_all_that_fail_are_an_error(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> Any:
        raise NonFiniteError("the loss is NaN", where="update 3", remedy="Lower the learning rate")

    study = study_of(tmp_path, prepared)
    with monkeypatch.context() as patched:
        patched.setattr("rss_rl.results.tuning.trial.train", fails)
        records = all_records(study, 5)
    assert [record.state for record in records] == ["failed"] * 5
    assert study.hopeless(records)
    out = ["--out", study.folder]
    result = run_tune(tmp_path / "space.yaml", tmp_path / "tiny.yaml", *out, "--only-read")
    assert result.exit_code != 0
    assert "all 5 trials failed, the first with: update 3: the loss is NaN" in result.output
    good = train_trial(study.trial(7, {"sampler.selections": 4}), lambda: False, lambda _: None)
    assert not study.hopeless([*records, good])
    shown: list[str] = []
    write_search(study, shown.append)
    assert "- trial 0: update 3: the loss is NaN" in shown[0]


def test_killed_and_resumed(
    prepared: Path, tmp_path: Path, processes: list[subprocess.Popen[str]]
) -> None:
    """Killed within a trial; the same command continues, stops the worse trials early,
    and ends with its budget."""
    pytest.importorskip("pandas", reason="Ray Tune is an extra: rss-rl[tune]")
    pytest.importorskip("tensorboardX", reason="Ray Tune is an extra: rss-rl[tune]")
    # A learning rate of 1e-9 learns nothing, and is drawn more often than not.
    rates = {"choice": [1e-9, 2e-9, 3e-9, 0.02]}
    space, config = write_files(tmp_path, prepared, **{"learner.supervised.learning_rate": rates})
    command = ("tune", space, config, "--out", "out", "--minutes", "0.06")
    trials = tmp_path / "out" / "trials"
    processes.append(first := command_line(*command, cwd=tmp_path))
    before = wait_for_evaluation(trials / "001", first)
    # As where a machine goes down: the process that trains does not outlive the one that began it.
    log = trials / "001" / "seed-0" / "events.jsonl"
    worker = json.loads(log.read_text().splitlines()[0])["pid"]
    first.send_signal(signal.SIGKILL)
    os.kill(worker, signal.SIGKILL)
    first.communicate(timeout=DEADLINE_S)
    killed, finished = read_record(trials / "001"), read_record(trials / "000")
    assert killed is not None
    assert killed.state == "running"
    assert finished is not None
    assert finished.state == "finished"
    processes.append(second := command_line(*command, cwd=tmp_path))
    out, err = second.communicate(timeout=DEADLINE_S)
    assert second.returncode == 0, out + err
    assert "trial 000" not in out  # is not made again
    assert read_record(trials / "000") == finished
    resumed = read_record(trials / "001")
    assert resumed is not None
    assert resumed.evaluations[0][: len(before.evaluations[0])] == before.evaluations[0]
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert events[0] == "run_started"
    assert "run_resumed" in events
    study = open_study(tmp_path / "out", *_space_and_base(space, config))
    records = study.records()
    assert "stopped" in {record.state for record in records}
    assert all(points(r)[-1].progress in study.rungs for r in records if r.state == "stopped")
    spent = [record.core_s for record in records]
    assert sum(spent) >= 3.6
    assert sum(spent[:-1]) < 3.6  # the last trial was begun while there was something left
    assert not list((tmp_path / "out").glob(".stop-*"))
    assert not (tmp_path / "out" / ".tune").exists()
    assert (tmp_path / "out" / "best.yaml").is_file()
    again = run_tune(space, config, "--out", tmp_path / "out", "--minutes", "0.06")
    assert again.exit_code == 0, again.output
    assert study.records() == records  # the budget is spent: no trial is made, no cluster started


def _space_and_base(space: Path, config: Path) -> tuple[Any, Any]:
    base = load_base(config)
    return load_space(space, base), base


def wait_for_evaluation(trial: Path, process: subprocess.Popen[str]) -> TrialRecord:
    """Until the trial has been scored."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline and process.poll() is None:
        record = read_record(trial)
        if record is not None and any(record.evaluations):
            return record
        time.sleep(0.01)
    raise AssertionError(f"no evaluation: {process.communicate()}")


def test_without_the_extra(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rss_rl.cli.tune.find_spec", lambda name: None)
    result = run_tune(*write_files(tmp_path, prepared), "--out", tmp_path / "out")
    assert result.exit_code != 0
    assert "rss-rl[tune]" in result.output

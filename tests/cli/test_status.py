"""`rss-rl status`: what a run is doing, from its directory or its storage path."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import fsspec
import numpy as np
import pytest
from invoking import invoke

from rss_rl.config import PhaseConfig, RunConfig
from rss_rl.errors import CheckpointError
from rss_rl.logs.events import EventLog
from rss_rl.runs.checkpoint import save_checkpoint
from rss_rl.runs.run_directory import EVENTS_FILE, STATUS_FILE, RunDirectory
from rss_rl.training.status import read_status
from rss_rl.training.status_writer import RunProgress, StatusWriter
from rss_rl.training.trainer import Evaluated, PhaseBegan, Saved, Updated

CONFIG = RunConfig(
    data="some",
    phases=(
        PhaseConfig(name="warm-up", supervised=True, selection="all", steps=10),
        PhaseConfig(name="frozen", policy=True, steps=30),
    ),
)


def show(*arguments: object) -> str:
    result = invoke(["status", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


def written(run: Path) -> StatusWriter:
    """A run on its 14th update, half a second each."""
    copying = {"storage/lag_checkpoints": 2.0}
    made = StatusWriter(run, RunProgress(CONFIG), "s3://bucket/run")
    with mock.patch("time.monotonic") as clock:
        clock.return_value = 0.0
        made.take(PhaseBegan("frozen", 10, 30, 0, 1), copying)
        made.take(Saved(12, {}, {}, ()), copying)
        scores = {"thresholded": {"accuracy": 0.9, "loss": 0.2, "kept": 0.25}}
        made.take(Evaluated("frozen", 10, scores, True), copying)
        for update in range(11, 15):
            clock.return_value += 0.5
            scalars = {"selection/kept": 0.3, "policy/lag": 1.0, "policy/lag_max": 3}
            scalars |= {"sampler/alive": 2, "sampler/restarts": 2, "learner/idle_share": 0.9}
            scalars["policy/loss"] = float("nan")
            made.take(Updated(update, "frozen", 8, scalars), copying)
    return made


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with RunDirectory.create(tmp_path / "run", {"seed": 1}):
        written(tmp_path / "run")
        EventLog(tmp_path / "run").write("sampler_died", "warning", cause="out of memory [x]")
    return tmp_path / "run"


def test_what_is_reported(run: Path) -> None:
    with RunDirectory.open(run, lock=True):
        found = read_status(str(run))
        text = show(run)
    assert found.state == "running"
    assert found.holder == f"process {os.getpid()} on {os.uname().nodename}"
    record = found.record
    assert (record.phase, record.phase_number, record.phases) == ("frozen", 2, 3)
    assert (record.phase_done, record.phase_steps) == (4, 30)
    assert (record.update, record.checkpoint_step) == (14, 12)
    assert (record.updates_left, record.updates) == (56, 70)  # the comparison makes 30
    assert record.updates_per_s == pytest.approx(2)
    assert record.eta_s == pytest.approx(26 / 2 + 30 / 4)  # the policy learns in the first
    assert record.scalars["policy/loss"] is None
    for part in (
        "running, by process",
        "frozen, 2 of 3, 4 of 30 updates",
        "update 14, 20% done, 20 s left, 2.00 updates/s, the last ",
        "thresholded: accuracy 90.0%, loss 0.200, kept 25.0% (update 10, frozen)",
        "30.0%",
        "2 alive, restarts 2, lag 1.0, at most 3",
        "idle 90%",
        "s3://bucket/run",
        "2 checkpoints behind",
        "warning sampler_died out of memory [x]",
    ):
        assert part in text, part
    assert json.loads(show(run, "--json"))["problems"][0]["cause"] == "out of memory [x]"


def test_the_best_is_the_runs_own_while_the_comparison_trains(run: Path) -> None:
    made = written(run)
    made.take(PhaseBegan("all-tokens", 14, 30), {})
    whole = {"all": {"accuracy": 0.95, "loss": 0.1, "kept": 1.0}}
    made.take(Evaluated("all-tokens", 14, whole, True), {})
    made.end("stopped")
    text = show(run)
    assert "all-tokens (the comparison with all words), 3 of 3" in text
    assert "update 14 of the comparison" in text
    assert "best of the run" in text
    found = read_status(str(run)).record
    assert found.phase_number == 3
    assert found.dev is not None
    assert found.best is not None
    assert (found.dev.phase, found.best.phase) == ("all-tokens", "frozen")


def test_how_a_run_ended(run: Path) -> None:
    assert read_status(str(run)).state == "crashed"  # no lock, no report, and nothing says why
    assert "the reason is in its events.jsonl" in show(run)
    written(run).end("stopped")
    assert read_status(str(run)).state == "stopped"
    written(run).end("failed", "the disk is full")
    assert read_status(str(run)).state == "failed"
    resume = f"rss-rl train --resume {run} --storage s3://bucket/run continues it"
    text = " ".join(show(run).split())
    assert f"failed, error: the disk is full remedy {resume}" in text
    (run / "report.json").write_text("{}")
    assert read_status(str(run)).state == "finished"
    (run / STATUS_FILE).unlink()
    (run / "report.json").unlink()
    assert read_status(str(run)).state == "not running"


def test_asking_does_not_keep_a_trainer_out(run: Path) -> None:
    """Status takes the lock for an instant; a trainer that comes then tries again."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom rss_rl.runs.run_directory import lock_holder\n"
        "while True: lock_holder(Path(sys.argv[1]))"
    )
    asking = subprocess.Popen([sys.executable, "-c", code, str(run)])
    try:
        time.sleep(0.5)
        for _ in range(50):
            RunDirectory.open(run, lock=True).close()
    finally:
        asking.kill()
        asking.wait(20)


def test_a_storage_path_tells_the_same(run: Path) -> None:
    memory = fsspec.filesystem("memory")
    for file in (STATUS_FILE, EVENTS_FILE, "config.json"):
        memory.pipe(f"/there/{file}", (run / file).read_bytes())
    found, local = read_status("memory://there"), read_status(str(run))
    text = " ".join(show("memory://there").split())
    assert "rss-rl train --resume DIR --storage memory://there continues it" in text
    assert (found.state, found.record) == ("crashed", local.record)
    lease = {"host": "far", "pid": 9, "time": time.time(), "token": "x"}
    memory.pipe("/there/writer.json", json.dumps(lease).encode())
    assert "running, by process 9 on far" in show("memory://there")
    memory.rm("/there", recursive=True)
    with pytest.raises(CheckpointError, match="there is no run"):
        read_status("memory://there")


def test_a_full_disk_does_not_reach_the_training(tmp_path: Path) -> None:
    made = StatusWriter(tmp_path / "none", RunProgress(CONFIG))
    made.take(PhaseBegan("warm-up", 0, 10), {})
    made.end("stopped")
    assert not (tmp_path / "none").exists()


def test_it_is_written_once_a_second_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, writes = [0.0], set()
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    made = StatusWriter(tmp_path, RunProgress(CONFIG))
    for update in range(1, 101):
        now[0] += 0.05
        made.take(Updated(update, "warm-up", 8, {}), {})
        writes.add(json.loads((tmp_path / STATUS_FILE).read_text())["update"])
    assert len(writes) == 5


@pytest.mark.parametrize("damage", ["", "[1]", '{"update": -1}', '{"time": NaN}', '{"dev": {}}'])
def test_a_damaged_file_is_none(run: Path, damage: str) -> None:
    (run / STATUS_FILE).write_text(damage)
    assert "not running" in show(run)


def test_no_run_is_an_error(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, {"a": np.zeros(1)}, {}, keep_last=1)
    result = invoke(["status", str(tmp_path)])
    assert result.exit_code == 2
    assert "there is no run" in result.stderr

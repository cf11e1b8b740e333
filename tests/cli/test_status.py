"""`rss-rl status`: what a run is doing, from its directory or its storage path."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from rss_rl.cli.main import app
from rss_rl.config import PhaseConfig
from rss_rl.errors import CheckpointError
from rss_rl.logs.events import EVENTS_FILE, EventLog
from rss_rl.runs.checkpoint import save_checkpoint
from rss_rl.runs.run_directory import STATUS_FILE, RunDirectory
from rss_rl.training.heartbeat import Heartbeat
from rss_rl.training.session import UpdateReport
from rss_rl.training.status import read_status
from rss_rl.training.trainer import Evaluated, PhaseBegan

PHASES = (
    PhaseConfig(name="warm-up", supervised=True, selection="all", steps=10),
    PhaseConfig(name="frozen", policy=True, steps=30),
)


def show(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["status", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


def beat(run: Path) -> Heartbeat:
    """A run on its 14th update, half a second each."""
    now = [0.0]
    made = Heartbeat(run, PHASES, clock=lambda: now[0])
    made.note(storage="s3://bucket/run", copying={"storage/lag_checkpoints": 2.0})
    made.note_checkpoint(12)
    made.take(PhaseBegan("frozen", 10, 30))
    scores = {"thresholded": {"accuracy": 0.9, "loss": 0.2, "kept": 0.25}}
    made.take(Evaluated("frozen", 10, scores, True))
    for update in range(11, 15):
        now[0] += 0.5
        scalars = {"selection/kept": 0.3, "policy/lag": 1.0, "policy/lag_max": 3}
        scalars |= {"sampler/alive": 2, "sampler/restarts": 2, "learner/idle_share": 0.9}
        made.take(UpdateReport(update, "frozen", 8, scalars))
    made.write(force=True)
    return made


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with RunDirectory.create(tmp_path / "run", {"seed": 1}):
        beat(tmp_path / "run")
        EventLog(tmp_path / "run").write("sampler_died", "warning", cause="out of memory [x]")
    return tmp_path / "run"


def test_what_is_reported(run: Path) -> None:
    with RunDirectory.open(run, lock=True):
        found = read_status(str(run))
        text = show(run)
    assert found.state == "running"
    assert found.holder == f"process {os.getpid()} on {os.uname().nodename}"
    assert (found.phase, found.phase_number, found.phases) == ("frozen", 2, 2)
    assert (found.phase_done, found.phase_steps) == (4, 30)
    assert (found.update, found.updates, found.progress) == (14, 40, 0.35)
    assert found.updates_per_s == pytest.approx(2)
    assert found.eta_s == pytest.approx(13)
    assert found.checkpoint_step == 12
    assert found.update_age_s is not None
    assert found.update_age_s < 60
    for part in (
        "running by process",
        "frozen (2 of 2), 4 of 30 updates",
        "update 14 of 40, 35%, 13 s left",
        "2.00 updates/s",
        "thresholded: accuracy 90.0%, loss 0.200, kept 25.0% (update 10, frozen)",
        "30.0%",
        "2 alive, restarts 2, lag 1.0 (max 3), discarded -, idle -",
        "idle 90%",
        "s3://bucket/run, 2 checkpoints behind",
        "warning sampler_died out of memory [x]",
    ):
        assert part in text, part
    assert json.loads(show(run, "--json"))["problems"][0]["cause"] == "out of memory [x]"


def test_the_best_is_the_runs_own_while_the_comparison_trains(run: Path) -> None:
    made = beat(run)
    made.take(PhaseBegan("all-tokens", 14, 30), compares=True)
    whole = {"all": {"accuracy": 0.95, "loss": 0.1, "kept": 1.0}}
    made.take(Evaluated("all-tokens", 14, whole, True), compares=True)
    made.write(force=True)
    found = read_status(str(run))
    assert found.dev is not None
    assert found.best is not None
    assert (found.dev["phase"], found.best["phase"]) == ("all-tokens", "frozen")


def test_how_a_run_ended(run: Path) -> None:
    assert read_status(str(run)).state == "crashed"  # no lock, no report, and nothing says why
    beat(run).end("stopped")
    assert read_status(str(run)).state == "stopped"
    beat(run).end("failed", "the disk is full")
    assert read_status(str(run)).state == "failed"
    assert "failed: the disk is full" in show(run)
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


KILLED = """
    import os, signal, sys
    from pathlib import Path
    from rss_rl.runs.run_directory import RunDirectory
    run = RunDirectory.open(Path(sys.argv[1]), lock=True)
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_a_killed_run_is_followed_to_its_end(run: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(run)]
    training = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with training:
        assert training.stdout is not None
        assert training.stdout.readline() == "locked\n"
        follow = [sys.executable, "-m", "rss_rl.cli.main", "status", str(run)]
        following = subprocess.Popen(
            [*follow, "--follow", "--every", "0.1", "--json"], stdout=subprocess.PIPE, text=True
        )
        with following:
            assert following.stdout is not None
            assert json.loads(following.stdout.readline())["state"] == "running"
            training.send_signal(signal.SIGKILL)
            rest = following.communicate(timeout=30)[0].splitlines()
    assert following.returncode == 0
    assert [json.loads(line)["state"] for line in rest][-1] == "crashed"


def test_a_storage_path_tells_the_same(run: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    for file in (STATUS_FILE, EVENTS_FILE, "config.json"):
        memory.pipe(f"/there/{file}", (run / file).read_bytes())
    found, local = read_status("memory://there"), read_status(str(run))
    assert (found.state, found.update, found.dev) == ("crashed", 14, local.dev)
    assert found.disk_free_bytes is None
    lease = {"host": "far", "pid": 9, "time": time.time(), "token": "x"}
    memory.pipe("/there/writer.json", json.dumps(lease).encode())
    assert "running by process 9 on far" in show("memory://there")
    memory.rm("/there", recursive=True)
    with pytest.raises(CheckpointError, match="there is no run"):
        read_status("memory://there")


def test_a_full_disk_does_not_reach_the_training(tmp_path: Path) -> None:
    made = Heartbeat(tmp_path / "none", PHASES, every_s=0.001)
    made.start()
    made.take(PhaseBegan("warm-up", 0, 10))
    made.end("stopped")
    assert not (tmp_path / "none").exists()


def test_a_silent_run_is_seen_to_be_alive(tmp_path: Path) -> None:
    def said(key: str) -> object:
        return json.loads((tmp_path / STATUS_FILE).read_text()).get(key)

    def wait_for_news(before: object) -> None:
        deadline = time.monotonic() + 20
        while said("time") == before:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    made = Heartbeat(tmp_path, PHASES, every_s=0.01)
    made.take(UpdateReport(1, "warm-up", np.zeros(8), {}))
    made.write(force=True)
    updated, first = said("update_time"), said("time")
    made.start()
    try:
        wait_for_news(first)
        assert said("update_time") == updated  # since then it does something else
    finally:
        made.end("stopped")
    last = said("time")
    time.sleep(0.1)
    assert (said("state"), said("time")) == ("stopped", last)


def test_a_phase_that_begins_again_keeps_its_number(tmp_path: Path) -> None:
    phases = [*PHASES, PHASES[1], PhaseConfig(name="all-tokens", policy=True, steps=5)]
    made = Heartbeat(tmp_path, phases, every_s=0)

    def begin(name: str, update: int, done: int, compares: bool = False) -> tuple[int, str]:
        made.take(PhaseBegan(name, update, 30, done), compares=compares)
        record = json.loads((tmp_path / STATUS_FILE).read_text())
        return record["phase_index"] + 1, record["part"]

    assert begin("warm-up", 0, 0) == (1, "training")
    assert begin("frozen", 10, 0) == (2, "training")
    assert begin("frozen", 10, 0) == (2, "training")  # learners were lost, at once
    assert begin("frozen", 10, 7) == (2, "training")  # and after a checkpoint
    assert begin("frozen", 40, 0) == (3, "training")  # another of the same name
    assert begin("warm-up", 0, 9) == (1, "training")  # the newest checkpoints were damaged
    assert begin("frozen", 10, 0) == (2, "training")
    assert begin("frozen", 40, 0) == (3, "training")
    assert begin("all-tokens", 70, 0) == (4, "training")  # so named by the user
    assert begin("all-tokens", 10, 0, compares=True) == (5, "all-tokens")
    assert begin("all-tokens", 10, 5, compares=True) == (5, "all-tokens")


def test_it_is_written_once_a_second_at_most(tmp_path: Path) -> None:
    now, writes = [0.0], set()
    made = Heartbeat(tmp_path, PHASES, clock=lambda: now[0])
    for update in range(1, 101):
        now[0] += 0.05
        made.take(UpdateReport(update, "warm-up", 8, {}))
        writes.add(json.loads((tmp_path / STATUS_FILE).read_text())["update"])
    assert len(writes) == 5


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["scores", "update", "phase", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)
KEYS = [
    *("state", "phase", "phases", "phase_index", "phase_done", "phase_steps", "update", "updates"),
    *("eta_s", "updates_per_s", "update_time", "checkpoint_time", "checkpoint_step", "time"),
    *("scalars", "copying", "dev", "best", "error", "storage"),
]


@settings(max_examples=40)
@given(record=st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=9))
def test_whatever_the_file_holds_it_is_shown(
    record: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("fuzz")
    try:
        (place / "config.json").write_text("{}")
        (place / STATUS_FILE).write_text(json.dumps(record))
        (place / EVENTS_FILE).write_text(
            json.dumps({"event": "e", "level": "error", "cause": record.get("dev")})
        )
        assert "state" in show(place)
    finally:
        shutil.rmtree(place)


def test_directories_in_the_place_of_files(tmp_path: Path) -> None:
    for name in (STATUS_FILE, EVENTS_FILE):
        (tmp_path / name).mkdir()
    (tmp_path / "config.json").write_text("{}")
    assert "not running" in show(tmp_path)
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").mkdir()
    with pytest.raises(CheckpointError, match="there is no run"):
        read_status(str(tmp_path))


def test_no_run_is_an_error(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, {"a": np.zeros(1)}, {}, keep_last=1)
    result = CliRunner().invoke(app, ["status", str(tmp_path)])
    assert result.exit_code == 2
    assert "there is no run" in result.stderr

"""What a run reports while it trains and when it ends, however it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rss_rl.config import RunConfig
from rss_rl.errors import NonFiniteError
from rss_rl.logs.events import parse_events
from rss_rl.runs.checkpoint import checkpoint_steps
from rss_rl.runs.run_directory import EVENTS_FILE
from rss_rl.training.run import train
from rss_rl.training.status import read_status


def logged(run: Path) -> list[dict[str, Any]]:
    return parse_events((run / EVENTS_FILE).read_bytes())


def names(run: Path) -> list[str]:
    return [event["event"] for event in logged(run)]


def test_a_run_from_its_start_to_its_end(tiny_config: RunConfig, tmp_path: Path) -> None:
    run = tmp_path / "run"
    asked = iter([False] * 8 + [True])
    list(train(tiny_config, run, stop=lambda: next(asked)))
    first = names(run)
    assert first[0] == "run_started"
    assert first[-2:] == ["stop_asked", "run_stopped"]
    stopped = read_status(str(run))
    assert (stopped.state, stopped.record.update, stopped.record.phase_number) == ("stopped", 9, 3)
    list(train(tiny_config, run, resume=True))
    assert names(run)[len(first)] == "run_resumed"
    assert names(run)[-1] == "run_finished"
    events = logged(run)
    began = [event["phase"] for event in events if event["event"] == "phase_began"]
    assert began == ["warm-up", "frozen", "co-train", "co-train", "all-tokens"]
    saved = [e["step"] for e in events if e["event"] == "checkpoint_saved" and e["part"] == "run"]
    assert saved == sorted(saved)
    assert set(checkpoint_steps(run)) <= set(saved)
    assert read_status(str(run)).state == "finished"
    last = read_status(str(run)).record
    assert (last.phase, last.phase_number, last.updates_left) == ("all-tokens", 4, 0)
    assert last.dev is not None
    assert "accuracy" in last.dev.scores["all"]
    assert last.checkpoint_step == 12


def test_an_error_is_reported(tiny_config: RunConfig, tmp_path: Path) -> None:
    reckless = tiny_config.learner.supervised.model_copy(update={"learning_rate": 1e15})
    learner = tiny_config.learner.model_copy(update={"supervised": reckless})
    with pytest.raises(NonFiniteError, match="phase warm-up, update 2.*supervised") as caught:
        list(train(tiny_config.model_copy(update={"learner": learner}), tmp_path / "run"))
    last = max(checkpoint_steps(tmp_path / "run"))
    assert f"checkpoint is that of update {last}" in str(caught.value)
    found = read_status(str(tmp_path / "run"))
    assert found.state == "failed"
    assert "phase warm-up, update 2" in str(found.record.error)
    assert found.problems[-1]["event"] == "run_failed"
    assert found.problems[-1]["kind"] == "NonFiniteError"


def test_a_damaged_checkpoint_is_reported(tiny_config: RunConfig, tmp_path: Path) -> None:
    run = tmp_path / "run"
    asked = iter([False] * 8 + [True])
    list(train(tiny_config, run, stop=lambda: next(asked)))
    (run / "checkpoints" / "step-000009" / "state.json").write_text("damaged")
    list(train(tiny_config, run, resume=True))
    (output,) = [e for e in logged(run) if e["event"] == "checkpoint_passed_over"]
    assert output["level"] == "warning"
    assert "step 9" in output["cause"]

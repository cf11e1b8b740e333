"""The driver is killed while Ray samplers work for it: nothing of it stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from marked import MARK, processes_of, wait_until
from tiny_runs import Outcome, command_line

from rss_rl.config import RunConfig
from rss_rl.runs.checkpoint import load_checkpoint
from rss_rl.runs.run_directory import RunDirectory

GONE_S = 60


@pytest.fixture
def mark() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def start(
    monkeypatch: pytest.MonkeyPatch, mark: str, tiny: Callable[..., RunConfig], tmp_path: Path
) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `rss-rl train` and waits until samplers have been at work."""
    monkeypatch.setenv(MARK, mark)
    started = []

    def run(*arguments: object) -> subprocess.Popen[str]:
        process = command_line("train", *arguments, cwd=tmp_path)
        started.append(process)
        sampled = lambda: step_of(tmp_path / "run") >= 13  # noqa: E731
        assert wait_until(sampled, 120), process.communicate(timeout=5)
        assert any("ray::" in line for line in processes_of(mark).values())
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def step_of(run: Path) -> int:
    try:
        return load_checkpoint(run).step
    except Exception:  # there is none yet, or another one just replaced it
        return -1


def at_work(mark: str) -> list[str]:
    """All but agents of Ray's: one that misses its cluster late ends by itself after a minute."""
    return [line for line in processes_of(mark).values() if "Agent" not in line]


def configuration(tiny: Callable[..., RunConfig], path: Path) -> Path:
    config = tiny(sampler={"backend": "ray", "actors": 2})
    path.write_text(json.dumps(config.model_dump(mode="json")))  # JSON is YAML
    return path


def test_killed(
    mark: str,
    start: Callable[..., subprocess.Popen[str]],
    tiny: Callable[..., RunConfig],
    reference: Outcome,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = set(os.listdir("/dev/shm"))
    process = start(configuration(tiny, tmp_path / "c.yaml"), "--out", "run")
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)
    RunDirectory.open(tmp_path / "run", lock=True).close()  # nobody holds it any more
    monkeypatch.setenv(MARK, f"{mark} resumed")
    resumed = command_line("train", "--resume", "run", cwd=tmp_path)
    _, err = resumed.communicate(timeout=150)
    assert resumed.returncode == 0, err
    Outcome.read(tmp_path / "run").assert_equals(reference)
    assert wait_until(lambda: not at_work(mark), GONE_S), at_work(mark)
    assert set(os.listdir("/dev/shm")) <= before

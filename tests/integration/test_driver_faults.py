"""The driver is killed while Ray samplers work for it: nothing of it stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from marked import MARK, processes_of, wait_until
from tiny_runs import Outcome, command_line

from rss_rl.config import RunConfig
from rss_rl.runs.checkpoint import load_checkpoint
from rss_rl.training.attempts import LocalRoles
from rss_rl.training.run import train

GONE_S = 60


def step_of(run: Path) -> int:
    try:
        return load_checkpoint(run).step
    except Exception:  # there is none yet, or another one just replaced it
        return -1


def at_work(mark: str) -> list[str]:
    """All but agents of Ray's: one that misses its cluster late ends by itself after a minute."""
    return [line for line in processes_of(mark).values() if "Agent" not in line]


def test_killed(
    tiny: Callable[..., RunConfig],
    reference: Outcome,
    tmp_path: Path,
    processes: list[subprocess.Popen[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it was killed in goes on in another process, with a sampler of its own."""
    run, mark, before = tmp_path / "run", uuid.uuid4().hex, set(os.listdir("/dev/shm"))
    config = tiny(sampler={"backend": "ray", "actors": 2})
    (tmp_path / "c.yaml").write_text(json.dumps(config.model_dump(mode="json")))  # JSON is YAML
    with monkeypatch.context() as patch:
        patch.setenv(MARK, mark)
        processes.append(process := command_line("train", "c.yaml", "--out", "run", cwd=tmp_path))
    assert wait_until(lambda: step_of(run) >= 13, 120), process.communicate(timeout=5)
    assert any("ray::" in line for line in processes_of(mark).values())
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    list(train(config, run, resume=True, roles=LocalRoles()))  # nobody holds its lock any more
    Outcome.read(run).assert_equals(reference)
    assert wait_until(lambda: not at_work(mark), GONE_S), at_work(mark)
    assert set(os.listdir("/dev/shm")) <= before

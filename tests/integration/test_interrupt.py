"""Ctrl-C ends `rss-rl train` with a checkpoint, a second signal at once."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tiny_runs import command_line

from rss_rl.config import RunConfig
from rss_rl.runs.checkpoint import load_checkpoint

DEADLINE_S = 60


@pytest.fixture
def config(tiny: Callable[..., RunConfig], tmp_path: Path) -> Path:
    """Of a run that takes far longer than the test."""
    tree = tiny(evaluation={"every": 30}).model_dump(mode="json")
    tree["phases"][0]["steps"] = 10**6
    path = tmp_path / "long.yaml"
    path.write_text(json.dumps(tree))  # JSON is YAML
    return path


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `rss-rl train` and waits until it has evaluated twice."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: object) -> subprocess.Popen[str]:
        process = command_line("train", *arguments, cwd=tmp_path)
        started.append(process)
        timer = threading.Timer(DEADLINE_S, process.kill)
        timer.start()
        assert process.stdout is not None
        evaluations = 0
        for line in process.stdout:
            evaluations += "dev: " in line
            if evaluations == 2:
                break
        timer.cancel()
        assert evaluations == 2, process.stderr and process.stderr.read()
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def test_once(config: Path, tmp_path: Path, start: Callable[..., subprocess.Popen[str]]) -> None:
    process = start(config, "--out", "run")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130, err
    assert "Ctrl-C again quits at once" in err
    assert "rss-rl train --resume run" in out
    stopped = re.search(r"Stopped after update (\d+)", out)
    assert stopped is not None
    assert load_checkpoint(tmp_path / "run").step == int(stopped[1])


def test_twice(config: Path, start: Callable[..., subprocess.Popen[str]]) -> None:
    process = start(config, "--out", "run")
    process.send_signal(signal.SIGSTOP)  # both signals are there when it continues
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode in (-signal.SIGINT, -signal.SIGTERM), err

"""Sweeps on Ray: killed in the middle and repeated, with a run that fails; stopped."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import command_line, tiny_tree

import rss_rl
from rss_rl.config import parse_config
from rss_rl.json_files import read_json
from rss_rl.training.run import train

DEADLINE_S = 240
PHASES = [
    {"name": "warm-up", "supervised": True, "selection": "all", "steps": 4},
    {"name": "co-train", "supervised": True, "policy": True, "steps": 40},
]


def write_spec(place: Path, data: Path, **changes: Any) -> Path:
    base = tiny_tree(data) | {"phases": PHASES}
    base["evaluation"] |= {"all_tokens": False, "every": 4}
    base["checkpoint"] = {"every": 2}
    (place / "tiny.yaml").write_text(json.dumps(base))
    file = place / "own.yaml"
    file.write_text(json.dumps({"base": str(place / "tiny.yaml")} | changes))
    return file


def events_of(run: Path) -> list[str]:
    lines = (run / "events.jsonl").read_text().splitlines()
    return [json.loads(line)["event"] for line in lines]


def wait_for(files: str, place: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline and process.poll() is None:
        if list(place.glob(files)):
            return
        time.sleep(0.02)
    raise AssertionError(f"no {files}: {process.communicate()}")


@pytest.mark.usefixtures("shared_ray")
def test_killed_and_repeated(
    prepared: Path, tmp_path: Path, processes: list[subprocess.Popen[str]]
) -> None:
    """What was finished stays as it is, what was not goes on, and a failed run ends no other.

    First in one process, then in processes of Ray.
    """
    # Long enough that none ends before its worker has noticed that the sweep was killed.
    rare = {"evaluation.every": 60, "checkpoint.every": 6}
    rss: dict[str, Any] = {"settings": {"phases.1.steps": 240} | rare}
    rows = {"rss": rss, "bad": {"settings": {"evaluation.best_metric": "pearson"}, "axes": {}}}
    axes = {"reward.target_share": [0.3, 0.6]}
    rss["also"] = {"weights": "largest weights"}
    spec = write_spec(tmp_path, prepared, rows=rows, axes=axes, seeds=1, judged=True)
    command = ("sweep", spec, "--out", tmp_path / "out")
    first, second = (
        tmp_path / "out" / prepared.name / f"rss,reward.target_share={share}" / "seed-0"
        for share in (0.3, 0.6)
    )
    processes.append(killed := command_line(*command, cwd=tmp_path))
    wait_for("checkpoints/step-*", second, killed)
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=DEADLINE_S)
    assert not (second / "report.json").exists()
    before = (first / "report.json").stat().st_mtime_ns

    result = rss_rl.sweep(spec, out=tmp_path / "out", jobs=2)
    assert (first / "report.json").stat().st_mtime_ns == before
    assert events_of(first).count("run_started") == 1
    assert "run_resumed" not in events_of(first)
    assert (events_of(second).count("run_started"), "run_resumed" in events_of(second)) == (1, True)
    [(name, reason)] = result.failed.items()
    assert (name, "pearson" in reason) == (f"{prepared.name}/bad/seed-0", True)
    assert {*result.frame["run"]} == {str(first), str(second)}
    assert not [path for path in (tmp_path / "out").iterdir() if path.name == ".stop"]

    config = json.loads((second / "config.json").read_text())["config"]
    for _ in train(parse_config(config, where="test"), tmp_path / "alone"):
        pass
    alone, there = (read_json(run / "report.json", "") for run in (tmp_path / "alone", second))
    test = there["splits"]["test"]
    assert {mode: test[mode] for mode in alone["splits"]["test"]} == alone["splits"]["test"]
    assert ("weights" in test, "trojan" in there) == (True, True)
    assert not (second / "checkpoints").exists()  # which nothing needs any more


def test_ctrl_c_keeps_everything(
    prepared: Path, tmp_path: Path, processes: list[subprocess.Popen[str]]
) -> None:
    spec = write_spec(tmp_path, prepared, seeds=1)
    run = tmp_path / "out" / prepared.name / "tiny" / "seed-0"
    processes.append(
        process := command_line(
            "sweep", spec, "--jobs", "2", "--out", tmp_path / "out", cwd=tmp_path
        )
    )
    wait_for("checkpoints/step-*", run, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130, out + err
    assert "each run saves a checkpoint first" in err
    assert "tiny/seed-0: stopped" in out
    assert "the same command goes on" in out
    assert not (run / "report.json").exists()
    assert not (tmp_path / "out" / ".stop").exists()

"""A table that was interrupted, killed, or made by several processes equals one that never was."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import ray
from table_runs import table_tree, wait_for_checkpoint, write_table_file
from tiny_runs import command_line
from typer.testing import CliRunner

from rss_rl.cli.main import app

DEADLINE_S = 90


def longer(**changes: Any) -> dict[str, Any]:
    """Long enough to be met in the middle: 64 updates of `resan`."""
    tree = table_tree(seeds=1, **changes)
    phases = tree["datasets"][0]["bases"]["selecting"]["settings"]["phases"]
    longest = [phases[0], {**phases[1], "steps": 60}]
    tree["datasets"][0]["bases"]["selecting"]["settings"] = {"phases": longest}
    tree["settings"] |= {"evaluation.every": 30, "checkpoint.every": 8}
    tree["settings"]["learner.threads"] = 1
    return tree


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The CSV of the table made in one go, in this process."""
    place = tmp_path_factory.mktemp("expected")
    file = write_table_file(place / "own.yaml", **longer())
    command = ["table", str(file), "--out", str(place / "out"), "--no-timing"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    return (place / "out" / "own" / "table.csv").read_text()


def test_interrupted_and_killed(
    expected: str, tmp_path: Path, processes: list[subprocess.Popen[str]]
) -> None:
    write_table_file(tmp_path / "own.yaml", **longer())
    command = ("table", "own.yaml", "--out", "out", "--no-timing")
    run = tmp_path / "out" / "own" / "planted" / "resan" / "seed-0"

    processes.append(first := command_line(*command, cwd=tmp_path))
    reached = wait_for_checkpoint(run, 4, first)
    first.send_signal(signal.SIGINT)
    out, err = first.communicate(timeout=DEADLINE_S)
    assert first.returncode == 130, err
    assert "each run saves a checkpoint first" in err
    assert "planted/resan/seed-0: stopped" in out
    assert "planted/mean/seed-0" not in out
    assert "the same command resumes the runs" in out

    processes.append(second := command_line(*command, cwd=tmp_path))
    wait_for_checkpoint(run, reached + 8, second)
    second.kill()
    second.communicate(timeout=DEADLINE_S)
    assert not (run / "report.json").exists()

    options = [str(tmp_path / "own.yaml"), "--out", str(tmp_path / "out"), "--no-timing"]
    third = CliRunner().invoke(app, ["table", *options])
    assert third.exit_code == 0, third.output
    events = [json.loads(line)["event"] for line in (run / "events.jsonl").read_text().splitlines()]
    assert (events.count("run_started"), events.count("run_resumed")) == (1, 2)
    assert (tmp_path / "out" / "own" / "table.csv").read_text() == expected


def test_several_at_a_time(expected: str, tmp_path: Path) -> None:
    """Ray's tasks make the same runs; one that fails ends no other."""
    tree = longer()
    bad = dict(tree["rows"][1], name="bad", label="Bad")
    bad["settings"] = {**bad["settings"], "evaluation.best_metric": "pearson"}
    tree["rows"].append(bad)
    file = write_table_file(tmp_path / "own.yaml", **tree)
    command = ["table", str(file), "--out", str(tmp_path / "out"), "--no-timing", "--jobs", "2"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1, result.output
    assert not ray.is_initialized()
    assert "Failed runs: 1" in result.output
    assert "planted/bad/seed-0: evaluation.best_metric: this data set's labels are" in result.output
    made = (tmp_path / "out" / "own" / "table.csv").read_text()
    rows = [row for row in csv.reader(made.splitlines()) if row[1] != "bad"]
    assert rows == list(csv.reader(expected.splitlines()))
    assert not list((tmp_path / "out" / "own").glob(".stop*"))

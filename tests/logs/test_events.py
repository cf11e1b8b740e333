"""The event log: what a line says, and no disk that stops a run."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta
from pathlib import Path

from rss_rl.logs.events import EventLog, parse_events
from rss_rl.runs.run_directory import EVENTS_FILE


def read(run: Path) -> list[dict[str, object]]:
    return parse_events((run / EVENTS_FILE).read_bytes())


def test_a_line_says_who_when_and_where_in_the_run(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    log.at(7, 5)
    log.write("sampler_died", "error", actor="sampler 2", cause="it\nwas killed ✂")
    log.write("run_finished", wall_s=float("nan"), update=8, version=6)
    first, second = read(tmp_path)
    time = datetime.fromisoformat(str(first.pop("time")))
    assert time.utcoffset() == timedelta(0)
    assert first == {
        "level": "error",
        "event": "sampler_died",
        "run": tmp_path.name,
        "pid": os.getpid(),
        "host": os.uname().nodename,
        "actor": "sampler 2",
        "version": 5,
        "update": 7,
        "cause": "it\nwas killed ✂",
    }
    assert (second["update"], second["version"], second["wall_s"]) == (8, 6, None)
    assert second["actor"] is None


def test_a_refusing_disk_costs_lines_alone(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "run")  # which does not exist yet
    log.write("run_started")
    (tmp_path / "run").mkdir()
    log.write("run_stopped")
    assert [line["event"] for line in read(tmp_path / "run")] == ["run_stopped"]


def test_torn_and_foreign_lines_are_passed_over() -> None:
    lines = [b'{"event": "a"}', b'{"event": "b', b"[1]", b"\xff", b"[" * 9000, b'{"event": 5}', b""]
    assert parse_events(b"\n".join([*lines, json.dumps({"event": "z"}).encode()])) == [
        {"event": "a"},
        {"event": "z"},
    ]

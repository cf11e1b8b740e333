"""The event log: every line whole, every name known, and no disk that stops a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from rss_rl.logs import events
from rss_rl.logs.events import (
    EVENTS,
    EVENTS_FILE,
    EventLog,
    NullEventLog,
    parse_events,
)


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


@pytest.mark.parametrize("log", [EventLog(Path("nowhere")), NullEventLog()], ids=["file", "null"])
def test_unknown_names_are_errors_with_and_without_a_file(log: EventLog | NullEventLog) -> None:
    with pytest.raises(ValueError, match="no registered event 'sampler_dead'; did you mean"):
        log.write("sampler_dead")
    with pytest.raises(ValueError, match="'sampler_died' has no field 'reason'"):
        log.write("sampler_died", reason="x")
    log.write("sampler_died", update=3, version=2)  # any event may carry these


def test_a_refusing_disk_costs_lines_and_says_how_many(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "run")  # which does not exist yet
    for _ in range(3):
        log.write("run_stopped")
    assert log.lost == 3
    (tmp_path / "run").mkdir()
    log.write("run_stopped")
    assert log.lost == 0
    (line,) = read(tmp_path / "run")
    assert line["lost_before"] == 3


FULL = """
    import resource, signal, sys
    from pathlib import Path
    from rss_rl.logs.events import EventLog
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    log = EventLog(Path(sys.argv[1]))
    log.write("run_failed", error="e" * 500)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
    for _ in range(5):
        log.write("run_failed", error="f" * 500)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    log.write("run_stopped")
"""


def test_a_line_that_a_full_disk_cut_off_swallows_no_other(tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(FULL), str(tmp_path)]
    subprocess.run(command, check=True, timeout=60)
    first, last = read(tmp_path)
    assert (first["event"], last["event"], last["lost_before"]) == ("run_failed", "run_stopped", 5)


def test_the_size_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_MAX_BYTES", 5000)
    log = EventLog(tmp_path)
    for number in range(200):
        log.write("run_failed", error=f"{number} " * 20)
        sizes = [path.stat().st_size for path in tmp_path.iterdir()]
        assert len(sizes) <= 2
        assert max(sizes) < 6000
    assert sorted(os.listdir(tmp_path))[-1] == f"{EVENTS_FILE}.1"
    old = parse_events((tmp_path / f"{EVENTS_FILE}.1").read_bytes())
    assert str(old[-1]["error"]).startswith(("19", "18"))


def test_torn_and_foreign_lines_are_passed_over() -> None:
    lines = [b'{"event": "a"}', b'{"event": "b', b"[1]", b"\xff", b"[" * 9000, b'{"event": 5}', b""]
    assert parse_events(b"\n".join([*lines, json.dumps({"event": "z"}).encode()])) == [
        {"event": "a"},
        {"event": "z"},
    ]


def test_the_documentation_lists_every_event(repository: Path) -> None:
    page = (repository / "docs" / "metrics.md").read_text(encoding="utf-8")
    table = page.split("<!-- events:start -->")[1].split("<!-- events:end -->")[0]
    expected = [
        f"| `{event}` | {meaning} | {', '.join(f'`{field}`' for field in fields)} |"
        for event, (meaning, *fields) in EVENTS.items()
    ]
    assert table.strip().split("\n")[2:] == expected

"""What happened to a run, as one JSON object a line: for people who look for a cause.

    events.jsonl     {"time": ..., "level": ..., "event": ..., "run": ..., "pid": ..., ...}
    events.jsonl.1   what was there before the last rotation

Every line has time (UTC), level, event, run, pid, host, actor (null in the process that trains),
version (of the policy) and update, then the fields that `event_registry` lists for the event.
"""

from __future__ import annotations

__all__ = [
    "EVENTS_FILE",
    "EventLog",
    "NO_LOG",
    "EventSink",
    "Level",
    "NullEventLog",
    "parse_events",
]

import json
import os
import socket
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from rss_rl.json_files import without_non_finite
from rss_rl.logs.event_registry import find_event

Level = Literal["info", "warning", "error"]
EVENTS_FILE = "events.jsonl"
_MAX_BYTES = 16 * 2**20
_LONGEST_TEXT = 4000


class EventSink(Protocol):
    """Takes note of events."""

    def write(self, event: str, level: Level = "info", **fields: Any) -> None:
        """Log a registered event with some of its fields."""


class NullEventLog:
    """Notes nothing, but knows the names: a wrong one fails without a log too."""

    def write(self, event: str, level: Level = "info", **fields: Any) -> None:
        """See `EventSink`."""
        find_event(event, fields.keys() - {"actor", "version", "update"})

    def at(self, update: int | None, version: int | None) -> None:
        """See `EventLog`."""


NO_LOG = NullEventLog()
"""For where nobody listens."""


class EventLog:
    """Appends to the log of a run; safe in threads, and a refusing disk never reaches the caller.

    Args:
        run_dir: where events.jsonl is.
        max_bytes: beyond it the file becomes events.jsonl.1 in the place of the one before.
    """

    def __init__(self, run_dir: Path, *, max_bytes: int = _MAX_BYTES) -> None:
        self._path, self._max_bytes = run_dir / EVENTS_FILE, max_bytes
        self._who = {
            "run": run_dir.name,
            "pid": os.getpid(),
            "host": socket.gethostname(),
        }
        self._update: int | None = None
        self._version: int | None = None
        self._lock = threading.Lock()
        self.lost = 0

    def at(self, update: int | None, version: int | None) -> None:
        """Note where the run stands; every later line says so."""
        self._update, self._version = update, version

    def write(self, event: str, level: Level = "info", **fields: Any) -> None:
        """Log an event; `actor`, `update` and `version` may be given for this line alone.

        What cannot be written is counted in `lost`, and the next line that can be says how many.

        Raises:
            ValueError: an event or field that is not registered.
        """
        place = {
            "actor": fields.pop("actor", None),
            "version": fields.pop("version", self._version),
            "update": fields.pop("update", self._update),
        }
        find_event(event, fields)
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        head = {"time": now, "level": level, "event": event, **self._who, **place}
        with self._lock:
            if self.lost:
                head["lost_before"] = self.lost
            try:
                self._append(_line(head, fields))
                self.lost = 0
            except OSError:
                self.lost += 1

    def _append(self, line: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o644)
        try:
            size = os.fstat(descriptor).st_size
            # A line that the disk cut off, or a kill, must not swallow this one.
            torn = size and not _ends_line(self._path)
            if os.write(descriptor, b"\n" + line if torn else line) < len(line):
                raise OSError("the line was cut off")
            full = size + len(line) > self._max_bytes
        finally:
            os.close(descriptor)
        if full:
            os.replace(self._path, self._path.with_name(f"{EVENTS_FILE}.1"))


def _line(head: dict[str, Any], fields: dict[str, Any]) -> bytes:
    values = {
        name: value[:_LONGEST_TEXT] if isinstance(value, str) else value
        for name, value in fields.items()
    }
    text = json.dumps(without_non_finite(head | values), default=str, ensure_ascii=True)
    return text.encode() + b"\n"


def _ends_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def parse_events(content: bytes) -> list[dict[str, Any]]:
    """The events in the bytes of a log, in order; torn and foreign lines are left out."""
    found = []
    for line in content.splitlines():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and isinstance(record.get("event"), str):
            found.append(record)
    return found

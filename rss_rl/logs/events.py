"""The event log of a run, one JSON object a line, for diagnosis.

    {"time": ..., "level": ..., "event": ..., "run": ..., "pid": ..., ...}

Every line has time (UTC), level, event, run, pid, host, actor (null in the training process),
version (of the policy) and update, then the fields that docs/metrics.md lists for the event.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from rss_rl.json_files import json_object, without_non_finite
from rss_rl.runs.run_directory import EVENTS_FILE

Level = Literal["info", "warning", "error"]
_LONGEST_TEXT = 4000


class EventSink(Protocol):
    """Logs events."""

    def write(self, event: str, level: Level = "info", **fields: Any) -> None:
        """Log an event with some of its fields."""


class NullEventLog:
    """Writes nothing."""

    def write(self, event: str, level: Level = "info", **fields: Any) -> None:
        """See `EventSink`."""


NO_LOG = NullEventLog()
"""For runs without a log."""


class EventLog:
    """Appends to the log of a run; thread-safe, and disk errors never reach the caller.

    Args:
        run_dir: where events.jsonl is.
    """

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / EVENTS_FILE
        self._who = {"run": run_dir.name, "pid": os.getpid(), "host": socket.gethostname()}
        self._update: int | None = None
        self._version: int | None = None
        self._lock = threading.Lock()

    def at(self, update: int | None, version: int | None) -> None:
        """Set the update and policy version of all later lines."""
        self._update, self._version = update, version

    def write(self, event: str, level: Level = "info", **fields: Any) -> None:
        """Log an event; `actor`, `update` and `version` may be given for this line only.

        A line that the disk refuses is lost.
        """
        position = {
            "actor": fields.pop("actor", None),
            "version": fields.pop("version", self._version),
            "update": fields.pop("update", self._update),
        }
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        head = {"time": now, "level": level, "event": event, **self._who, **position}
        cut = {name: v[:_LONGEST_TEXT] if isinstance(v, str) else v for name, v in fields.items()}
        line = json.dumps(without_non_finite(head | cut), default=str, ensure_ascii=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with self._lock, suppress(OSError):
            descriptor = os.open(self._path, flags, 0o644)
            try:
                os.write(descriptor, line.encode() + b"\n")
            finally:
                os.close(descriptor)


def parse_events(content: bytes) -> list[dict[str, Any]]:
    """The events in the bytes of a log, in order; incomplete and other lines are skipped."""
    records = map(json_object, content.splitlines())
    return [record for record in records if isinstance(record.get("event"), str)]

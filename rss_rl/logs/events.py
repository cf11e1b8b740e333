"""The event log of a run, one JSON object a line, for diagnosis.

    events.jsonl     {"time": ..., "level": ..., "event": ..., "run": ..., "pid": ..., ...}
    events.jsonl.1   the previous file, before the last rotation

Every line has time (UTC), level, event, run, pid, host, actor (null in the training process),
version (of the policy) and update, then the fields that `EVENTS` lists for the event.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from rss_rl.errors import nearest
from rss_rl.json_files import json_object, without_non_finite

Level = Literal["info", "warning", "error"]
EVENTS_FILE = "events.jsonl"
_MAX_BYTES = 16 * 2**20
"""Beyond it the file is renamed to events.jsonl.1, replacing an older one."""
_LONGEST_TEXT = 4000


EVENTS: dict[str, tuple[str, ...]] = {
    "run_started": ("training begins in a new run directory", "path", "storage"),
    "run_resumed": ("training resumes from a checkpoint", "path", "storage", "step"),
    "run_finished": ("the report was written", "wall_s"),
    "run_stopped": ("the run was stopped and saved a checkpoint",),
    "run_failed": ("an error ended the run", "error", "kind"),
    "stop_asked": ("a signal or a caller requested a stop",),
    "phase_began": ("a phase begins or is resumed", "phase", "steps", "done"),
    "evaluated": ("the dev split was scored", "phase", "best", "scores"),
    "checkpoint_saved": ("a checkpoint is complete on the local disk", "step", "part"),
    "checkpoint_passed_over": ("a damaged checkpoint was skipped", "cause"),
    "sampler_started": ("a sampler has started", "node"),
    "sampler_died": ("a sampler's process has died", "node", "cause"),
    "sampler_hung": ("a sampler did not respond in time", "node", "cause"),
    "sampler_waiting": ("a sampler was not placed or started in time; requested again",),
    "job_resent": ("a straggling job was sent to another sampler, too", "node", "job", "waited_s"),
    "sampler_replaced": ("a new sampler replaces a lost one", "node"),
    "learner_lost": ("a learner process has died or hung", "cause"),
    "storage_restored": ("a run was restored from its storage", "files"),
    "storage_synced": ("the storage has the newest state of the run", "files", "upload_s"),
    "logger_failed": ("a logger raised, and gets nothing more", "logger", "cause"),
    "storage_failed": ("an upload failed and is retried", "cause", "failures"),
}
"""When each is logged, and the fields that it may have in addition to those of every event."""


def _check_event(name: str, fields: Iterable[str]) -> None:
    """Refuse an event or a field that is not in `EVENTS`, naming the nearest one."""
    if name not in EVENTS:
        raise ValueError(f"no registered event {name!r}{nearest(name, list(EVENTS))}")
    known = list(EVENTS[name][1:])
    for field in fields:
        if field not in known:
            raise ValueError(f"event {name!r} has no field {field!r}{nearest(field, known)}")


class EventSink(Protocol):
    """Logs events."""

    def write(self, event: str, level: Level = "info", **fields: Any) -> None:
        """Log a registered event with some of its fields."""


class NullEventLog:
    """Writes nothing, but checks names, so that wrong ones fail without a log, too."""

    def write(self, event: str, level: Level = "info", **fields: Any) -> None:
        """See `EventSink`."""
        _check_event(event, fields.keys() - {"actor", "version", "update"})


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
        self.lost = 0

    def at(self, update: int | None, version: int | None) -> None:
        """Set the update and policy version of all later lines."""
        self._update, self._version = update, version

    def write(self, event: str, level: Level = "info", **fields: Any) -> None:
        """Log an event; `actor`, `update` and `version` may be given for this line only.

        Lines that cannot be written are counted in `lost`, and the next line has their number.

        Raises:
            ValueError: an event or field that is not registered.
        """
        position = {
            "actor": fields.pop("actor", None),
            "version": fields.pop("version", self._version),
            "update": fields.pop("update", self._update),
        }
        _check_event(event, fields)
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        head = {"time": now, "level": level, "event": event, **self._who, **position}
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
            # An incomplete line, after a full disk or a kill, must not corrupt this one.
            torn = size and not _ends_line(self._path)
            if os.write(descriptor, b"\n" + line if torn else line) < len(line):
                raise OSError("the line was truncated")
            full = size + len(line) > _MAX_BYTES
        finally:
            os.close(descriptor)
        if full:
            os.replace(self._path, self._path.with_name(f"{EVENTS_FILE}.1"))


def _line(head: dict[str, Any], fields: dict[str, Any]) -> bytes:
    cut = {name: v[:_LONGEST_TEXT] if isinstance(v, str) else v for name, v in fields.items()}
    text = json.dumps(without_non_finite(head | cut), default=str, ensure_ascii=True)
    return text.encode() + b"\n"


def _ends_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def parse_events(content: bytes) -> list[dict[str, Any]]:
    """The events in the bytes of a log, in order; incomplete and other lines are skipped."""
    records = map(json_object, content.splitlines())
    return [record for record in records if isinstance(record.get("event"), str)]

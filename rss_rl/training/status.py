"""The status of a run, read from its directory or storage path, while it trains or afterwards.

Read-only, and without torch.
"""

from __future__ import annotations

import math
import os
import shutil
import stat
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from rss_rl.errors import CheckpointError
from rss_rl.json_files import json_object
from rss_rl.logs.events import EVENTS_FILE, parse_events
from rss_rl.mirror.lease import live_writer
from rss_rl.runs.run_directory import STATUS_FILE, lock_holder
from rss_rl.storage import is_uri, open_storage

State = Literal["running", "finished", "stopped", "failed", "crashed", "not running"]
_MOST_BYTES = 2**20
_PROBLEMS = 5


@dataclass(frozen=True)
class RunStatus:
    """The status of a run; None = not known.

    state           crashed: no process trains it, and it was not recorded to have ended
    holder          the training process, as `process 12 on host`
    phase           its name, number (from 1), number of phases, updates done and in total
    progress        share of the updates done, of the run or of the comparison with all tokens
    scalars         newest value of each metric of training, by tag
    dev, best       {"update": ..., "phase": ..., "scores": {mode: {metric: value}}}
    copying         metrics of the storage path, by tag
    problems        latest warnings and errors, as in events.jsonl
    """

    place: str
    state: State
    holder: str | None = None
    error: str | None = None
    phase: str | None = None
    phase_number: int | None = None
    phases: int | None = None
    phase_done: int | None = None
    phase_steps: int | None = None
    update: int | None = None
    updates: int | None = None
    progress: float | None = None
    eta_s: float | None = None
    updates_per_s: float | None = None
    update_age_s: float | None = None
    checkpoint_step: int | None = None
    checkpoint_age_s: float | None = None
    status_age_s: float | None = None
    scalars: dict[str, float] = field(default_factory=dict)
    dev: dict[str, Any] | None = None
    best: dict[str, Any] | None = None
    storage: str | None = None
    copying: dict[str, float] = field(default_factory=dict)
    problems: tuple[dict[str, Any], ...] = ()
    disk_free_bytes: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return asdict(self)


def read_status(place: str) -> RunStatus:
    """The status of the run in a directory or on a storage path.

    Raises:
        CheckpointError: there is no run.
        StorageError: the storage cannot be read.
    """
    storage, run_dir = open_storage(place), Path(place)
    local = not is_uri(place)
    read: Callable[[str], bytes | None] = _local_reader(run_dir) if local else storage.read
    if read("config.json") is None:
        raise CheckpointError(
            "there is no run", where=place, remedy="Name the directory or storage path of a run"
        )
    finished = read("report.json") is not None
    # A storage path may be a local directory, too: its writer holds a lease instead of a lock.
    holder = (_holder(run_dir) if local else None) or live_writer(storage)
    record = json_object(read(STATUS_FILE) or b"")
    state = _state(holder, finished, record.get("state"))
    events = parse_events(read(EVENTS_FILE) or b"")
    problems = [event for event in events if event.get("level") in ("warning", "error")]
    return RunStatus(
        place=place,
        state=state,
        holder=holder,
        problems=tuple(problems[-_PROBLEMS:]),
        disk_free_bytes=shutil.disk_usage(run_dir).free if local else None,
        **_progress(record, running=state == "running"),
    )


def _state(holder: str | None, finished: bool, noted: object) -> State:
    if holder is not None:
        return "running"
    if finished:
        return "finished"
    if noted == "stopped":
        return "stopped"
    if noted == "failed":
        return "failed"
    return "not running" if noted is None else "crashed"


def _progress(record: Mapping[str, Any], *, running: bool) -> dict[str, Any]:
    """The fields of status.json, with their types checked."""
    counts = {
        name: _count(record.get(name))
        for name in ("phases", "phase_done", "phase_steps", "update", "updates", "checkpoint_step")
    }
    index = _count(record.get("phase_index"))
    update, updates = counts["update"], counts["updates"]
    return counts | {
        "phase_number": None if index is None else index + 1,
        "phase": _text(record.get("phase")),
        "error": _text(record.get("error")),
        "storage": _text(record.get("storage")),
        "progress": min(1.0, update / updates) if updates and update is not None else None,
        "eta_s": _number(record.get("eta_s")) if running else None,
        "updates_per_s": _number(record.get("updates_per_s")),
        "update_age_s": _age(record.get("update_time")),
        "checkpoint_age_s": _age(record.get("checkpoint_time")),
        "status_age_s": _age(record.get("time")),
        "scalars": _numbers(record.get("scalars")),
        "copying": _numbers(record.get("copying")),
        "dev": _scored(record.get("dev")),
        "best": _scored(record.get("best")),
    }


def _local_reader(run_dir: Path) -> Callable[[str], bytes | None]:
    def read(name: str) -> bytes | None:
        """The last _MOST_BYTES of a regular file; only logs are longer."""
        try:
            descriptor = os.open(run_dir / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            os.close(descriptor)
            return None
        with os.fdopen(descriptor, "rb") as file:
            file.seek(max(0, found.st_size - _MOST_BYTES))
            return file.read(_MOST_BYTES)

    return read


def _holder(run_dir: Path) -> str | None:
    try:
        return lock_holder(run_dir)
    except OSError:
        return None


def _number(value: object) -> float | None:
    if type(value) not in (int, float):
        return None
    try:
        number = float(value)  # type: ignore[arg-type]
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _numbers(value: object) -> dict[str, float]:
    items = value.items() if isinstance(value, dict) else ()
    return {str(name): n for name, item in items if (n := _number(item)) is not None}


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and type(value) is int and 0 <= value < 2**63 else None


def _text(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    return "".join(c for c in value if c.isprintable() or c == "\n")


def _scored(value: object) -> dict[str, Any] | None:
    if not isinstance(value, dict) or not isinstance(value.get("scores"), dict):
        return None
    scores = {str(mode): _numbers(metrics) for mode, metrics in value["scores"].items()}
    update, phase = _count(value.get("update")), _text(value.get("phase"))
    return {"update": update, "phase": phase, "scores": scores}


def _age(value: object) -> float | None:
    """Seconds since an ISO time, not negative."""
    try:
        then = datetime.fromisoformat(value) if isinstance(value, str) else None
        return None if then is None else max(0.0, (datetime.now(UTC) - then).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None

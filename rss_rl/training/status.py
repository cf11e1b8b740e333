"""The status of a run, read from its directory or storage path, while it trains or afterwards.

Read-only, and without torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from rss_rl.durable import plain_bytes
from rss_rl.errors import CheckpointError
from rss_rl.logs.events import parse_events
from rss_rl.mirror.lease import live_writer
from rss_rl.runs.run_directory import EVENTS_FILE, STATUS_FILE, lock_holder
from rss_rl.storage import is_uri, open_storage

State = Literal["running", "finished", "stopped", "failed", "crashed", "not running"]
_MOST_BYTES = 64 * 2**20
_MOST_EVENTS = 2**20
_PROBLEMS = 5
_UNITS = ((86400, "d", 1), (3600, "h", 1), (60, "min", 0), (1, "s", 0))
"""Length in seconds, name and decimal places."""

Count = Annotated[int, Field(ge=0, lt=2**63)]


class _Part(BaseModel):
    # A file of another version, or one that somebody else wrote, is treated as none.
    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class Scored(_Part):
    """Scores of the dev split by mode and metric, and when: after which update, in which phase."""

    update: Count
    phase: str
    scores: dict[str, dict[str, float | None]]


class StatusRecord(_Part):
    """The content of status.json; None = not known.

    state                     as recorded by the training process
    phase                     its name; number (from 1), number of phases, the comparison with all
                              tokens included, updates done and at most
    update                    number of the last; of the comparison, counted from its start
    updates, updates_left     of the run and its comparison
    update_time               when the last update ended; time: when the file was written
    scalars                   newest value of each metric of training, by tag
    copying                   metrics of the storage path, by tag
    """

    state: Literal["training", "finished", "stopped", "failed"] = "training"
    error: str | None = None
    phase: str | None = None
    phase_number: Count | None = None
    phases: Count | None = None
    phase_done: Count = 0
    phase_steps: Count | None = None
    update: Count | None = None
    updates: Count | None = None
    updates_left: Count | None = None
    updates_per_s: float | None = None
    eta_s: float | None = None
    update_time: AwareDatetime | None = None
    checkpoint_step: Count | None = None
    checkpoint_time: AwareDatetime | None = None
    time: AwareDatetime | None = None
    scalars: dict[str, float | None] = {}
    dev: Scored | None = None
    best: Scored | None = None
    storage: str | None = None
    copying: dict[str, float | None] = {}


@dataclass(frozen=True)
class RunStatus:
    """The status of a run.

    state     crashed: no process trains it, and it was not recorded to have ended
    record    what the training process wrote last
    holder    the training process, as `process 12 on host`; None without one
    problems  latest warnings and errors, as in events.jsonl
    """

    place: str
    state: State
    record: StatusRecord
    holder: str | None = None
    problems: tuple[dict[str, Any], ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        where = {"place": self.place, "state": self.state, "holder": self.holder}
        return self.record.model_dump(mode="json") | where | {"problems": self.problems}


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
    # A storage path may be a local directory, too: it has an owner instead of a lock.
    holder = (_holder(run_dir) if local else None) or live_writer(storage)
    content = read(STATUS_FILE)
    try:
        record = StatusRecord() if content is None else StatusRecord.model_validate_json(content)
    except ValidationError:
        content, record = None, StatusRecord()
    state: State = "not running" if content is None else "crashed"
    if holder is not None:
        state = "running"
    elif finished:
        state = "finished"
    elif record.state in ("stopped", "failed"):
        state = record.state
    events = parse_events((read(EVENTS_FILE) or b"")[-_MOST_EVENTS:])
    problems = [event for event in events if event.get("level") in ("warning", "error")]
    return RunStatus(place, state, record, holder, tuple(problems[-_PROBLEMS:]))


def span(seconds: float) -> str:
    """A time span in its largest unit.

    >>> span(5), span(90), span(8000)
    ('5 s', '2 min', '2.2 h')
    """
    size, unit, places = next((u for u in _UNITS if seconds >= u[0]), _UNITS[-1])
    return f"{seconds / size:.{places}f} {unit}"


def _local_reader(run_dir: Path) -> Callable[[str], bytes | None]:
    def read(name: str) -> bytes | None:
        try:
            return plain_bytes(run_dir / name, _MOST_BYTES)
        except (OSError, ValueError):
            return None

    return read


def _holder(run_dir: Path) -> str | None:
    try:
        return lock_holder(run_dir)
    except OSError:
        return None

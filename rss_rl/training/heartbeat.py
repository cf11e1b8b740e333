"""The progress of a run in status.json, rewritten about once a second without blocking the run.

Metrics reach the disk only at checkpoints; in between, this file shows that the run is alive and
how far it is. During an evaluation, or with a hung sampler, there are no events: a thread keeps
writing, and the time of the last update shows how long there has been none.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from rss_rl.config import PhaseConfig
from rss_rl.json_files import without_non_finite
from rss_rl.runs.run_directory import ALL_TOKENS, STATUS_FILE
from rss_rl.training.session import UpdateReport
from rss_rl.training.trainer import Evaluated, Event, PhaseBegan

SCHEMA_VERSION = 1
_SMOOTHING, _LONGEST_WRITE_S = 0.95, 5.0
EndState = Literal["finished", "stopped", "failed"]


class Heartbeat:
    """Consumes the events of a run and keeps its status.json up to date.

    Args:
        phases: of the configuration, to estimate the remaining time.
        every_s: minimum time between two writes.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        run_dir: Path,
        phases: Sequence[PhaseConfig],
        *,
        every_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path, self._every_s, self._clock = run_dir / STATUS_FILE, every_s, clock
        self._written = -every_s
        self._total, self._names = updates_of(phases), [phase.name for phase in phases]
        self._index = -1
        self._update_s: float | None = None
        self._last_update: float | None = None
        self._begun: dict[tuple[str, int], int] = {}  # phase indices, by name and first update
        self._lock, self._over = threading.RLock(), threading.Event()
        self._thread = threading.Thread(target=self._beat, name="rss-rl heartbeat", daemon=True)
        self._record: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "run": run_dir.name,
            "state": "training",
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "started": _now(),
            "phases": len(phases),
            "scalars": {},
        }

    def start(self) -> None:
        """Start to write periodically, also without events, until `end` or `close`."""
        self._thread.start()

    def take(self, event: Event, *, compares: bool = False) -> None:
        """Record an event; the begin of a phase is written at once.

        Args:
            compares: it is an event of the comparison with all tokens.
        """
        with self._lock:
            if isinstance(event, PhaseBegan):
                self._begin(event, compares)
            elif isinstance(event, UpdateReport):
                self._update(event)
            elif isinstance(event, Evaluated):
                scored = {"update": event.update, "phase": event.phase, "scores": event.metrics}
                self._record["dev"] = scored
                if event.best and not compares:
                    self._record["best"] = scored
            self.write(force=isinstance(event, PhaseBegan))

    def note(self, **values: Any) -> None:
        """Add values, JSON data, to the record; written with the next event."""
        with self._lock:
            self._record |= values

    def note_checkpoint(self, step: int) -> None:
        """Record a completed checkpoint."""
        self.note(checkpoint_step=step, checkpoint_time=_now())

    def end(self, state: EndState, error: str | None = None) -> None:
        """Write the last record."""
        self.close()
        self.note(state=state, error=error, eta_s=None)
        self.write(force=True)

    def close(self) -> None:
        """Stop the periodic writes; may be called twice."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(_LONGEST_WRITE_S)

    def _beat(self) -> None:
        while not self._over.wait(self._every_s):
            self.write()

    def write(self, *, force: bool = False) -> None:
        """Write the record unless the last write is too recent; disk errors are ignored."""
        with self._lock:
            now = self._clock()
            if not force and now - self._written < self._every_s:
                return
            self._written = now
            record = without_non_finite(self._record | {"time": _now()})
            temporary = self._path.with_name(f".tmp-{STATUS_FILE}-{os.getpid()}")
            with suppress(OSError):
                # Not synced: after a power cut this file is obsolete.
                temporary.write_text(json.dumps(record, indent=1), encoding="utf-8")
                os.replace(temporary, self._path)

    def _number_of(self, event: PhaseBegan, compares: bool) -> int:
        """Index of the phase that begins; the comparison counts as a last phase."""
        if compares:
            return len(self._names)
        # After learners were lost, the current phase or an earlier one begins again.
        begun = self._begun.get((event.name, event.update))
        if begun is not None:
            return begun
        later = [n for n, name in enumerate(self._names) if n > self._index and name == event.name]
        return later[0] if later else self._index + 1

    def _begin(self, event: PhaseBegan, compares: bool) -> None:
        self._index = self._number_of(event, compares)
        if not compares:
            self._begun[event.name, event.update] = self._index
        self._record |= {
            "part": ALL_TOKENS if compares else "training",
            "phase": event.name,
            "phase_index": self._index,
            "phase_steps": event.steps,
            "phase_done": event.done,
            "update": event.update + event.done,
            "updates": event.update + (event.steps or 0) if compares else self._total,
        }
        self._last_update = None  # the time between two phases is not that of an update

    def _update(self, event: UpdateReport) -> None:
        now = self._clock()
        if self._last_update is not None:
            taken = now - self._last_update
            before = taken if self._update_s is None else self._update_s
            self._update_s = _SMOOTHING * before + (1 - _SMOOTHING) * taken
        self._last_update = now
        self._record["phase_done"] = self._record.get("phase_done", 0) + 1
        self._record |= {"update": event.update, "update_time": _now()}
        self._record["scalars"] |= {tag: float(value) for tag, value in event.scalars.items()}
        if self._update_s:
            total = self._record.get("updates")
            left = None if total is None else max(0, total - event.update) * self._update_s
            self._record |= {"updates_per_s": 1 / self._update_s, "eta_s": left}


def updates_of(phases: Sequence[PhaseConfig]) -> int | None:
    """Total updates of all phases; None if one lasts until its plateau."""
    steps = [phase.steps for phase in phases]
    return None if None in steps else sum(step for step in steps if step is not None)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")

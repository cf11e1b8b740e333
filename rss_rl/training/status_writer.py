"""The progress of a run in status.json, rewritten at its events, once a second at most.

Metrics reach the disk only at checkpoints; in between, this file shows how far the run is. During a
long evaluation, or with a hung sampler, it is not written: the time of the last update shows how
long there has been none, and the run's lock that it is alive.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, SupportsFloat

from rss_rl.config import PhaseConfig
from rss_rl.runs.run_directory import STATUS_FILE
from rss_rl.training.status import Scored, StatusRecord
from rss_rl.training.trainer import Evaluated, Event, PhaseBegan, UpdateReport

_SMOOTHING = 0.95
EndState = Literal["finished", "stopped", "failed"]


class StatusWriter:
    """Consumes the events of a run and keeps its status.json up to date.

    Args:
        phases: of the configuration, to estimate the remaining time.
        storage: the storage path of the run's copy.
        every_s: minimum time between two writes.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        run_dir: Path,
        phases: Sequence[PhaseConfig],
        storage: str | None = None,
        *,
        every_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path, self._every_s, self._clock = run_dir / STATUS_FILE, every_s, clock
        self._written = -math.inf
        steps = [phase.steps for phase in phases]
        self._total = None if None in steps else sum(step or 0 for step in steps)
        self._update_s: float | None = None
        self._last_update: float | None = None
        self._record = StatusRecord(phases=len(phases), storage=storage)

    def take(self, event: Event, copying: Mapping[str, float], *, compares: bool = False) -> None:
        """Record an event; the begin of a phase is written at once.

        Args:
            copying: metrics of the storage path.
            compares: it is an event of the comparison with all tokens, the phase after the last.
        """
        record = self._record
        record.copying = _finite(copying)
        if isinstance(event, PhaseBegan):
            record.phase, record.phase_steps = event.name, event.steps
            record.phase_number = 1 + ((record.phases or 0) if compares else event.index)
            record.phase_done, record.update = event.done, event.update + event.done
            record.updates = event.update + (event.steps or 0) if compares else self._total
            self._last_update = None  # the time between two phases is not that of an update
        elif isinstance(event, UpdateReport):
            self._update(event)
        elif isinstance(event, Evaluated):
            scores = {mode: _finite(metrics) for mode, metrics in event.metrics.items()}
            record.dev = Scored(update=event.update, phase=event.phase, scores=scores)
            if event.best and not compares:
                record.best = record.dev
        self._write(force=isinstance(event, PhaseBegan))

    def note_checkpoint(self, step: int) -> None:
        """Record a completed checkpoint; written with the next event."""
        self._record.checkpoint_step, self._record.checkpoint_time = step, datetime.now(UTC)

    def end(self, state: EndState, error: str | None = None) -> None:
        """Write the last record."""
        self._record.state, self._record.error, self._record.eta_s = state, error, None
        self._write(force=True)

    def _update(self, event: UpdateReport) -> None:
        now, record = self._clock(), self._record
        if self._last_update is not None:
            taken = now - self._last_update
            before = taken if self._update_s is None else self._update_s
            self._update_s = _SMOOTHING * before + (1 - _SMOOTHING) * taken
        self._last_update = now
        record.phase_done += 1
        record.update, record.update_time = event.update, datetime.now(UTC)
        record.scalars |= _finite(event.scalars)
        if self._update_s:
            left = None if record.updates is None else max(0, record.updates - event.update)
            record.updates_per_s = 1 / self._update_s
            record.eta_s = None if left is None else left * self._update_s

    def _write(self, *, force: bool) -> None:
        """Write the record unless the last write is too recent; disk errors are ignored."""
        now = self._clock()
        if not force and now - self._written < self._every_s:
            return
        self._written, self._record.time = now, datetime.now(UTC)
        temporary = self._path.with_name(f".tmp-{STATUS_FILE}-{os.getpid()}")
        with suppress(OSError):
            # Not synced: after a power cut this file is obsolete.
            temporary.write_text(self._record.model_dump_json(indent=1), encoding="utf-8")
            os.replace(temporary, self._path)


def _finite(values: Mapping[str, SupportsFloat]) -> dict[str, float | None]:
    """Numbers for JSON, which has no others than finite ones."""
    plain = {name: float(value) for name, value in values.items()}
    return {name: value if math.isfinite(value) else None for name, value in plain.items()}

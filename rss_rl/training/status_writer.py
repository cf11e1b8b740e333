"""How far a run is, by its events, and status.json, which says so.

Metrics reach the disk only at checkpoints; in between, status.json shows how far the run is. It is
rewritten at events, once a second at most. During a long evaluation, or with a hung sampler, it is
not written: the time of the last update shows how long there has been none, and the run's lock that
it is alive.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, SupportsFloat

from rss_rl.config import RunConfig
from rss_rl.runs.run_directory import ALL_TOKENS, STATUS_FILE
from rss_rl.training.status import Scored, StatusRecord
from rss_rl.training.stopping import TimeBudget
from rss_rl.training.trainer import Evaluated, Event, PhaseBegan, Saved, Updated

_SMOOTHING = 0.95
_EVERY_S = 1.0
"""Minimum time between two writes."""
EndState = Literal["finished", "stopped", "failed"]


class RunProgress:
    """How far a run has come, the comparison with all words included; `record` says it.

    Args:
        budget: what its updates cost, and the longest time for it; None: neither is known.
    """

    def __init__(self, config: RunConfig, budget: TimeBudget | None = None) -> None:
        total, first = config.updates, config.phases[0]
        if total is not None and config.compares:  # which continues from a warm-up
            total = 2 * total - (first.steps or 0) * (first.selection == "all")
        self.record = StatusRecord(phases=len(config.phases) + config.compares, updates=total)
        self._budget = budget or TimeBudget(config)
        self._update_s: float | None = None
        # Seconds that an update took, as a multiple of its measured cost.
        self._pace = 1.0 if self._budget.measured else None
        self._index, self._last_update = 0, math.nan

    def take(self, event: object) -> None:
        """Record an event of the run; others than those of training change nothing."""
        record = self.record
        if isinstance(event, PhaseBegan):
            compares, left = event.name == ALL_TOKENS, record.updates
            record.phase, record.phase_steps = event.name, event.steps
            record.phase_number = record.phases if compares else event.index + 1
            record.phase_done, record.update = event.done, event.update + event.done
            if compares:
                left = None if event.steps is None else event.steps - event.done
            elif left is not None:
                left = max(0, left - record.update)
            record.updates_left = left
            self._index = len(self._budget.costs) - 1 if compares else event.index
            self._last_update = math.nan  # the time between two phases is not that of an update
        elif isinstance(event, Updated):
            self._update(event)
        elif isinstance(event, Evaluated):
            scores = {mode: _finite(metrics) for mode, metrics in event.metrics.items()}
            record.dev = Scored(update=event.update, phase=event.phase, scores=scores)
            if event.best and event.phase != ALL_TOKENS:
                record.best = record.dev
        if self._update_s:
            record.updates_per_s = 1 / self._update_s
        if self._pace is not None and record.updates_left is not None and record.phase_steps:
            in_phase = record.phase_steps - record.phase_done
            needed = self._pace * self._budget.cost(self._index, in_phase)
            record.eta_s = min(needed, self._budget.left_s)

    def _update(self, event: Updated) -> None:
        now, record = time.monotonic(), self.record
        taken = now - self._last_update
        if math.isfinite(taken):
            pace = taken / self._budget.costs[self._index]
            self._update_s = _smooth(self._update_s, taken)
            self._pace = _smooth(self._pace, pace)
        self._last_update = now
        record.phase_done += 1
        record.update, record.update_time = event.update, datetime.now(UTC)
        record.scalars |= _finite(event.scalars)
        if record.updates_left is not None:
            record.updates_left = max(0, record.updates_left - 1)


def _smooth(mean: float | None, value: float) -> float:
    return value if mean is None else _SMOOTHING * mean + (1 - _SMOOTHING) * value


class StatusWriter:
    """Consumes the events of a run and keeps its status.json up to date.

    Args:
        storage: the storage path of the run's copy.
    """

    def __init__(self, run_dir: Path, progress: RunProgress, storage: str | None = None) -> None:
        self._path, self._progress, self._written = run_dir / STATUS_FILE, progress, -math.inf
        self._record = progress.record
        self._record.storage = storage

    def take(self, event: Event, copying: Mapping[str, float]) -> None:
        """Record an event; the start of a phase is written at once.

        Args:
            copying: metrics of the storage path.
        """
        self._progress.take(event)
        if isinstance(event, Saved):
            self._record.checkpoint_step = event.update
            self._record.checkpoint_time = datetime.now(UTC)
        self._record.copying = _finite(copying)
        self._write(force=isinstance(event, PhaseBegan))

    def end(self, state: EndState, error: str | None = None) -> None:
        """Write the last record."""
        self._record.state, self._record.error, self._record.eta_s = state, error, None
        self._write(force=True)

    def _write(self, *, force: bool) -> None:
        """Write the record unless the last write is too recent; disk errors are ignored."""
        now = time.monotonic()
        if not force and now - self._written < _EVERY_S:
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

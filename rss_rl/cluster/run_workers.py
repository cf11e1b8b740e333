"""Runs of a table or a frontier on a Ray cluster, several at a time, with one CPU each.

Ray restarts a run whose process was lost; the run resumes from the checkpoints in its directory,
then or in a later command.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from rss_rl.cluster.actors import last_line
from rss_rl.errors import RssError
from rss_rl.results.tables.execute import RunResult, train_run
from rss_rl.results.tables.plan import PlannedRun, state_of
from rss_rl.training.status import read_status

RETRIES = 2
_POLL_S = 0.5


def _train(run: PlannedRun, overwrite: bool, stop_file: Path) -> RunResult:
    """Train a run in a Ray worker until it ends or the stop file appears."""
    if not stop_file.parent.is_dir():
        reason = f"{stop_file.parent}: is not on this machine. Give --out on a shared disk"
        return RunResult(run, "failed", 0.0, reason)
    if stop_file.exists():  # it appeared while the run was queued
        return RunResult(run, "stopped", 0.0)
    # A run that is restarted because its process was lost resumes from its checkpoints.
    return train_run(run, overwrite and state_of(run) == "changed", stop_file.exists)


def new_stop_file(folder: Path) -> Path:
    """The path of this process's stop file, whose existence makes the runs stop."""
    folder.mkdir(parents=True, exist_ok=True)
    stop_file = folder / f".stop-{socket.gethostname()}-{os.getpid()}"
    stop_file.unlink(missing_ok=True)
    return stop_file


def _latest(run: PlannedRun) -> str | None:
    """Phase and update of a run; None if it has not started, or is being replaced."""
    try:
        status = read_status(str(run.path))
    except (RssError, OSError):
        return None
    record = status.record
    if record.phase is None or status.state != "running":
        return None
    return f"{record.phase} {record.update}" + (f"/{record.updates}" if record.updates else "")


class RayWorkers:
    """Trains runs as Ray tasks; a `Workers`.

    Args:
        jobs: runs at a time.
        folder: of the table; on a disk that all nodes share.
        stop: polled while waiting; True stops the runs after their current update.
        progress: called with the latest status line of a run.
    """

    def __init__(
        self,
        jobs: int,
        folder: Path,
        stop: Callable[[], bool],
        progress: Callable[[PlannedRun, str], None],
    ) -> None:
        self._jobs, self._stop, self._progress = jobs, stop, progress
        self.stop_file = new_stop_file(folder)
        self._task = ray.remote(_train).options(num_cpus=1, max_retries=RETRIES)
        self._running: dict[Any, tuple[PlannedRun, float]] = {}

    def free(self) -> bool:
        """See `Workers`."""
        return len(self._running) < self._jobs

    def submit(self, run: PlannedRun, overwrite: bool) -> None:
        """See `Workers`."""
        reference = self._task.remote(run, overwrite, self.stop_file)
        self._running[reference] = (run, time.monotonic())

    def busy(self) -> bool:
        """See `Workers`."""
        return bool(self._running)

    def collect(self, timeout_s: float) -> list[RunResult]:
        """See `Workers`."""
        deadline = time.monotonic() + timeout_s
        ready: list[Any] = []
        while not ready and time.monotonic() < deadline:
            if self._stop():
                self.stop_file.touch()
            ready, _ = ray.wait(list(self._running), num_returns=1, timeout=_POLL_S)
        for run, _ in self._running.values():
            if line := _latest(run):
                self._progress(run, line)
        return [self._result(reference) for reference in ready]

    def _result(self, reference: Any) -> RunResult:
        run, started = self._running.pop(reference)
        try:
            result: RunResult = ray.get(reference, timeout=30)
            return result
        except RayError as error:
            reason = f"its process was lost: {last_line(error)}"
            return RunResult(run, "failed", time.monotonic() - started, reason)

    def close(self) -> None:
        """Remove the stop file."""
        self.stop_file.unlink(missing_ok=True)

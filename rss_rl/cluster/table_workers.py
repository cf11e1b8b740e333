"""Runs of a table as Ray tasks, several at a time, of one CPU each."""

from __future__ import annotations

__all__ = ["RayWorkers"]

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from rss_rl.cluster.place import last_line
from rss_rl.errors import RssError
from rss_rl.results.tables.plan import PlannedRun, state_of
from rss_rl.results.tables.work import Ended, make_run
from rss_rl.training.status import read_status

_RETRIES = 2
_POLL_S = 0.5


def _make(run: PlannedRun, overwrite: bool, stop_file: str) -> Ended:
    """The task, in a process of Ray's; a stop is asked by a file, which outlives nobody's death."""
    folder = Path(stop_file).parent
    if not folder.is_dir():
        reason = f"{folder}: is not on this machine. Give --out on a disk that all machines share"
        return Ended(run, "failed", 0.0, reason)
    # A task that is tried again after its process was lost goes on with what that one made.
    overwrite = overwrite and state_of(run) == "changed"
    return make_run(run, overwrite, Path(stop_file).exists)


class RayWorkers:
    """Makes runs on the cluster that this process has joined.

    Args:
        jobs: runs at a time.
        folder: of the table; on a disk that all nodes share.
        stop: asked while waiting; True lets the runs end after their present update.
        says: told the newest of each run.

    Its `stop_file` asks the runs that it made to stop.
    """

    def __init__(
        self,
        jobs: int,
        folder: Path,
        stop: Callable[[], bool],
        says: Callable[[PlannedRun, str], None],
    ) -> None:
        self._jobs, self._stop, self._says = jobs, stop, says
        # Its own: another command for the same table is not stopped by it.
        self.stop_file = folder / f".stop-{socket.gethostname()}-{os.getpid()}"
        folder.mkdir(parents=True, exist_ok=True)
        self.stop_file.unlink(missing_ok=True)
        self._task = ray.remote(_make).options(num_cpus=1, max_retries=_RETRIES)
        self._under_way: dict[Any, tuple[PlannedRun, float]] = {}

    def room(self) -> bool:
        """See `Workers`."""
        return len(self._under_way) < self._jobs

    def submit(self, run: PlannedRun, overwrite: bool) -> None:
        """See `Workers`."""
        reference = self._task.remote(run, overwrite, str(self.stop_file))
        self._under_way[reference] = (run, time.monotonic())

    def busy(self) -> bool:
        """See `Workers`."""
        return bool(self._under_way)

    def collect(self, timeout_s: float) -> list[Ended]:
        """See `Workers`."""
        deadline = time.monotonic() + timeout_s
        while True:
            if self._stop():
                self.stop_file.touch()
            ready, _ = ray.wait(list(self._under_way), num_returns=1, timeout=_POLL_S)
            if ready or time.monotonic() >= deadline:
                break
        for run, _ in self._under_way.values():
            self._tell(run)
        return [self._ended(reference) for reference in ready]

    def _ended(self, reference: Any) -> Ended:
        run, began = self._under_way.pop(reference)
        try:
            ended: Ended = ray.get(reference, timeout=30)
            return ended
        except RayError as error:
            reason = f"its process was lost: {last_line(error)}"
            return Ended(run, "failed", time.monotonic() - began, reason)

    def _tell(self, run: PlannedRun) -> None:
        try:
            status = read_status(str(run.path))
        except (RssError, OSError):  # not begun, or just being replaced
            return
        if status.phase is not None:
            of = "" if status.updates is None else f"/{status.updates}"
            self._says(run, f"{status.phase} {status.update}{of}")

    def close(self) -> None:
        """Remove the file that asks runs to stop."""
        self.stop_file.unlink(missing_ok=True)

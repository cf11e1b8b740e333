"""Progress of a table's runs: a line for each that begins or ends, and the remaining time."""

from __future__ import annotations

import os
import statistics
import sys
import time

from rich.console import Console
from rich.markup import escape

from rss_rl.api.terminal import say
from rss_rl.results.tables.execute import RunResult
from rss_rl.results.tables.plan import PlannedRun

_EVERY_S = 30.0
_EVERY_LIVE_S = 0.2
_STOPPING = "stopping: each run saves a checkpoint first; Ctrl-C again quits at once"


def say_stopping() -> None:
    """Announce the stop; safe in a signal handler."""
    os.write(sys.stderr.fileno(), f"{_STOPPING}\n".encode())


class TableProgress:
    """Shows the progress of the runs on `out`.

    Args:
        left: number of runs to train. jobs: runs at a time.
    """

    def __init__(self, out: Console, left: int, jobs: int) -> None:
        self._out, self._all, self._jobs = out, left, jobs
        self._over = 0
        self._walls: dict[str, list[float]] = {}
        self._lines: dict[str, str] = {}
        self._shown = time.monotonic()
        self._status = out.status("") if out.is_terminal else None
        if self._status is not None:
            self._status.start()

    def tell(self, line: str) -> None:
        """Print a line."""
        say(self._out, line)
        self._out.file.flush()

    def show(self, event: PlannedRun | RunResult) -> None:
        """Print a line for a run that began or ended."""
        if isinstance(event, PlannedRun):
            self._lines[event.label] = "begins"
            self.tell(f"{event.label}: begins")
            return
        self._lines.pop(event.run.label, None)
        self._over += event.outcome != "stopped"
        if event.outcome == "finished":
            self._walls.setdefault(event.run.row.name, []).append(event.wall_s)
        reason = f": {event.reason}" if event.reason else ""
        took = f" after {_clock(event.wall_s)}" if event.wall_s else ""
        self.tell(f"{event.run.label}: {event.outcome}{took}{reason}  {self._summary()}")

    def progress(self, run: PlannedRun, line: str) -> None:
        """Note the latest line of a run; it is shown at intervals."""
        self._lines[run.label] = line
        pause = _EVERY_S if self._status is None else _EVERY_LIVE_S
        if time.monotonic() - self._shown < pause:
            return
        self._shown = time.monotonic()
        now = "; ".join(f"{label}: {newest}" for label, newest in self._lines.items())
        if self._status is None:
            self.tell(f"  {self._summary()}  {now}")
        else:
            self._status.update(escape(f"{self._summary()}  {now}"))

    def close(self) -> None:
        """Stop the live status line."""
        if self._status is not None:
            self._status.stop()

    def _summary(self) -> str:
        left = self._all - self._over
        walls = [statistics.fmean(own) for own in self._walls.values()]
        eta = f", about {_clock(statistics.fmean(walls) * left / self._jobs)}" if walls else ""
        return f"[{self._over} of {self._all} runs over, {left} left{eta if left else ''}]"


def _clock(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{seconds:.0f} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"

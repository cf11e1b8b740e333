"""How the runs of a table are shown: a line for each that begins or ends, and what is left."""

from __future__ import annotations

__all__ = ["TableProgress"]

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


class TableProgress:
    """Shows on `out` how the runs go; a `Reporter`.

    Args:
        left: runs to train. jobs: at a time.
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

    def began(self, run: PlannedRun) -> None:
        """See `Reporter`."""
        self._lines[run.label] = "begins"
        self.tell(f"{run.label}: begins")

    def progress(self, run: PlannedRun, line: str) -> None:
        """See `Reporter`; printed now and then."""
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

    def ended(self, ended: RunResult) -> None:
        """See `Reporter`."""
        self._lines.pop(ended.run.label, None)
        self._over += ended.outcome != "stopped"
        if ended.outcome == "finished":
            self._walls.setdefault(ended.run.row.name, []).append(ended.wall_s)
        reason = f": {ended.reason}" if ended.reason else ""
        took = f" after {_clock(ended.wall_s)}" if ended.wall_s else ""
        self.tell(f"{ended.run.label}: {ended.outcome}{took}{reason}  {self._summary()}")

    def stopping(self) -> None:
        """Say that a stop was asked; safe in a signal handler."""
        os.write(sys.stderr.fileno(), f"{_STOPPING}\n".encode())

    def close(self) -> None:
        """Leave the terminal as it was."""
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

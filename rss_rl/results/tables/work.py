"""Making the runs of a table: in this process one after another, or with workers of another kind.

A run that fails is noted, and the others go on; a stop leaves every run where it can be gone on
with.
"""

from __future__ import annotations

__all__ = ["Ended", "LocalWorkers", "Outcome", "Reporter", "Workers", "make_run", "work_through"]

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from rss_rl.errors import RssError
from rss_rl.metrics.measures import brief_measures
from rss_rl.results.tables.plan import Place, PlannedRun, state_of
from rss_rl.runs.run_directory import ALL_TOKENS, CONFIG_FILE, RunDirectory
from rss_rl.training.run import RunEvent, train
from rss_rl.training.session import UpdateReport
from rss_rl.training.trainer import Evaluated, PhaseBegan, Stopped

Outcome = Literal["finished", "stopped", "failed"]
_WAIT_S = 1.0


@dataclass(frozen=True)
class Ended:
    """What came of a run; `reason` where it failed."""

    run: PlannedRun
    outcome: Outcome
    wall_s: float
    reason: str = ""


class Reporter(Protocol):
    """Is told how the work goes."""

    def began(self, run: PlannedRun) -> None:
        """A run was begun, or is gone on with."""

    def says(self, run: PlannedRun, line: str) -> None:
        """The newest of a run that goes on."""

    def ended(self, ended: Ended) -> None:
        """A run is over, or stopped."""


class Workers(Protocol):
    """Whoever makes runs."""

    def room(self) -> bool:
        """Whether a run can be handed over now."""

    def submit(self, run: PlannedRun, overwrite: bool) -> None:
        """Hand a run over; with `overwrite` what is in its directory goes."""

    def busy(self) -> bool:
        """Whether a run that was handed over has not been collected."""

    def collect(self, timeout_s: float) -> list[Ended]:
        """What has ended since the last call; waits at most `timeout_s` for the first."""


def work_through(
    runs: Iterable[PlannedRun],
    workers: Workers,
    provide: Callable[[Place], None],
    reporter: Reporter,
    *,
    stop: Callable[[], bool] = lambda: False,
    again: bool = False,
) -> list[Ended]:
    """Make the runs; what came of each that was begun.

    Args:
        runs: that are not finished, in the order to make them.
        provide: makes the data of a place ready, or raises an RssError.
        stop: asked all the time; True begins no more, and asks those under way to stop.
        again: a run that was made with another configuration is replaced.
    """
    waiting, all_ended = deque(runs), list[Ended]()
    lost: dict[str, str] = {}  # places whose data cannot be had, and why
    while True:
        ended = []
        while waiting and workers.room() and not stop():
            run = waiting.popleft()
            reason = lost.get(run.place.name) or _unready(run, provide)
            if reason:
                lost[run.place.name] = reason
                ended.append(Ended(run, "failed", 0.0, reason))
                continue
            reporter.began(run)
            workers.submit(run, again and state_of(run) == "changed")
        if workers.busy():
            ended += workers.collect(_WAIT_S)
        for item in ended:
            reporter.ended(item)
        all_ended += ended
        if not workers.busy() and (stop() or not waiting):
            return all_ended


def _unready(run: PlannedRun, provide: Callable[[Place], None]) -> str:
    try:
        provide(run.place)
    except RssError as error:
        return str(error)
    return ""


def make_run(
    run: PlannedRun,
    overwrite: bool,
    stop: Callable[[], bool],
    says: Callable[[str], None] = lambda _: None,
) -> Ended:
    """Train a run to its end, going on from its last checkpoint; never raises for its failure."""
    started = time.monotonic()
    outcome: Outcome = "finished"
    reason = ""
    try:
        if not overwrite:
            _tell_where_data_lie(run)
        events = train(run.config, run.path, resume=not overwrite, overwrite=overwrite, stop=stop)
        for event in events:
            if line := _line(event):
                says(line)
            if isinstance(event, Stopped):
                outcome = "stopped"
    except RssError as error:
        outcome, reason = "failed", str(error)
    except Exception as error:  # whatever is wrong with one run, the others shall be made
        outcome, reason = "failed", f"{type(error).__name__}: {error}"
    return Ended(run, outcome, time.monotonic() - started, reason)


def _tell_where_data_lie(run: PlannedRun) -> None:
    """A directory of tables that was moved has its data elsewhere: an unfinished run is told."""
    for path in (run.path, run.path / ALL_TOKENS):
        if not (path / CONFIG_FILE).is_file():
            continue
        if RunDirectory.open(path).config.get("data") != run.config.data:
            with RunDirectory.open(path, lock=True) as directory:
                directory.moved_data(run.config.data)


def _line(event: RunEvent) -> str:
    """An event in a line, empty where it is not worth one."""
    if isinstance(event, PhaseBegan):
        return f"{event.name}: from update {event.update + event.done}"
    if isinstance(event, Evaluated):
        shown = [
            f"{name} {value:.4f}"
            for metrics in event.metrics.values()
            for name, value in brief_measures(metrics).items()
        ]
        return f"{event.phase} {event.update}  dev: {'  '.join(shown)}"
    if isinstance(event, UpdateReport) and event.update % 10 == 0:
        return f"{event.phase} {event.update}"
    return ""


class LocalWorkers:
    """This process, one run at a time; a run is made while it is collected.

    Args:
        stop: asked after each update. says: told the newest of the run.
    """

    def __init__(self, stop: Callable[[], bool], says: Callable[[PlannedRun, str], None]) -> None:
        self._stop, self._says = stop, says
        self._waiting: tuple[PlannedRun, bool] | None = None

    def room(self) -> bool:
        """See `Workers`."""
        return self._waiting is None

    def submit(self, run: PlannedRun, overwrite: bool) -> None:
        """See `Workers`."""
        self._waiting = (run, overwrite)

    def busy(self) -> bool:
        """See `Workers`."""
        return self._waiting is not None

    def collect(self, timeout_s: float) -> list[Ended]:
        """See `Workers`."""
        if self._waiting is None:
            return []
        (run, overwrite), self._waiting = self._waiting, None
        return [make_run(run, overwrite, self._stop, lambda line: self._says(run, line))]

"""Training the runs of a table: one after another in this process, or by workers on a cluster.

A failed run does not stop the others; after a stop, every run can be resumed.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from rss_rl.errors import RssError
from rss_rl.metrics.measures import brief_measures
from rss_rl.results.output import describe_scores
from rss_rl.results.tables.plan import Fold, PlannedRun, state_of
from rss_rl.runs.run_directory import ALL_TOKENS, CONFIG_FILE, RunDirectory
from rss_rl.training.run import RunEvent, train
from rss_rl.training.session import UpdateReport
from rss_rl.training.trainer import Evaluated, PhaseBegan, Stopped

Outcome = Literal["finished", "stopped", "failed"]
_WAIT_S = 1.0


@dataclass(frozen=True)
class RunResult:
    """How a run ended; `reason` if it failed."""

    run: PlannedRun
    outcome: Outcome
    wall_s: float
    reason: str = ""


class Workers(Protocol):
    """Trains several runs at a time."""

    def free(self) -> bool:
        """Whether a run can be submitted now."""

    def submit(self, run: PlannedRun, overwrite: bool) -> None:
        """Start a run; with `overwrite` its directory is replaced."""

    def busy(self) -> bool:
        """Whether a submitted run has not been collected yet."""

    def collect(self, timeout_s: float) -> list[RunResult]:
        """Results since the last call; waits at most `timeout_s` for the first."""


def execute(
    runs: Iterable[PlannedRun],
    workers: Workers,
    prepare: Callable[[Fold], None],
    *,
    stop: Callable[[], bool] = lambda: False,
    again: bool = False,
) -> Iterator[PlannedRun | RunResult]:
    """Train the runs; yields each run when it starts, and its result.

    Args:
        runs: unfinished runs, in order.
        prepare: prepares the data of a fold, or raises an RssError.
        stop: polled; True starts no more runs, and stops the current ones.
        again: replace runs that were trained with another configuration.
    """
    waiting = deque(runs)
    lost: dict[str, str] = {}  # folds without data, and the reason
    while True:
        while waiting and workers.free() and not stop():
            run = waiting.popleft()
            try:
                if run.fold.name not in lost:
                    prepare(run.fold)
            except RssError as error:
                lost[run.fold.name] = str(error)
            if reason := lost.get(run.fold.name):
                yield RunResult(run, "failed", 0.0, reason)
                continue
            yield run
            workers.submit(run, again and state_of(run) == "changed")
        if workers.busy():
            yield from workers.collect(_WAIT_S)
        elif stop() or not waiting:
            return


def train_run(
    run: PlannedRun,
    overwrite: bool,
    stop: Callable[[], bool],
    progress: Callable[[str], None] = lambda _: None,
) -> RunResult:
    """Train or resume a run; failures are returned as a result and never raise."""
    started = time.monotonic()
    outcome: Outcome = "finished"
    reason = ""
    try:
        if not overwrite:
            _note_moved_data(run)
        events = train(run.config, run.path, resume=not overwrite, overwrite=overwrite, stop=stop)
        for event in events:
            if line := _line(event):
                progress(line)
            if isinstance(event, Stopped):
                outcome = "stopped"
    except RssError as error:
        outcome, reason = "failed", str(error)
    except Exception as error:  # one failed run must not stop the others
        outcome, reason = "failed", f"{type(error).__name__}: {error}"
    return RunResult(run, outcome, time.monotonic() - started, reason)


def _note_moved_data(run: PlannedRun) -> None:
    """Update the data path of an unfinished run: the directory of tables may have moved."""
    for path in (run.path, run.path / ALL_TOKENS):
        if not (path / CONFIG_FILE).is_file():
            continue
        if RunDirectory.open(path).config.get("data") != run.config.data:
            with RunDirectory.open(path, lock=True) as directory:
                directory.moved_data(run.config.data)


def _line(event: RunEvent) -> str:
    """An event as a progress line; empty for most."""
    if isinstance(event, PhaseBegan):
        return f"{event.name}: from update {event.update + event.done}"
    if isinstance(event, Evaluated):
        scores = (describe_scores(brief_measures(own)) for own in event.metrics.values())
        return f"{event.phase} {event.update}  dev: {'  '.join(scores)}"
    if isinstance(event, UpdateReport) and event.update % 10 == 0:
        return f"{event.phase} {event.update}"
    return ""


class LocalWorkers:
    """Trains in this process, one run at a time, inside `collect`.

    Args:
        stop: polled after each update. progress: called with each progress line of a run.
    """

    def __init__(
        self, stop: Callable[[], bool], progress: Callable[[PlannedRun, str], None]
    ) -> None:
        self._stop, self._progress = stop, progress
        self._waiting: tuple[PlannedRun, bool] | None = None

    def free(self) -> bool:
        """See `Workers`."""
        return self._waiting is None

    def submit(self, run: PlannedRun, overwrite: bool) -> None:
        """See `Workers`."""
        self._waiting = (run, overwrite)

    def busy(self) -> bool:
        """See `Workers`."""
        return self._waiting is not None

    def collect(self, timeout_s: float) -> list[RunResult]:
        """See `Workers`."""
        if self._waiting is None:
            return []
        (run, overwrite), self._waiting = self._waiting, None
        return [train_run(run, overwrite, self._stop, lambda line: self._progress(run, line))]

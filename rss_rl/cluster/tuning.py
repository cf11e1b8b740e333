"""A search on Ray Tune: trials of one CPU each, and asynchronous successive halving (ASHA).

Ray Tune runs the trials and decides which of them to stop. The records of a search are in its own
folder, not in Tune's, so that it resumes after any kill: earlier trials are replayed to the
scheduler, and interrupted ones resume from their checkpoints.

Source: Li et al., A System for Massively Parallel Hyperparameter Tuning, MLSys 2020.
"""

from __future__ import annotations

import logging
import os
import queue
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search import Searcher

from rss_rl.cluster.run_workers import RETRIES, new_stop_file
from rss_rl.errors import ClusterError
from rss_rl.results.tuning.study import REDUCTION, Study
from rss_rl.results.tuning.trial import (
    WORST,
    State,
    Trial,
    TrialRecord,
    points,
    read_record,
    train_trial,
    write_record,
)

_POLL_S = 0.5
_FOLDER = ".tune"
_SETTINGS = {"TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1", "RAY_AIR_NEW_OUTPUT": "0"}
"""Keeps Tune from printing to the terminal."""
_END_S = 30.0
_TIME, _PROMISE, _NUMBER, _STATE = "progress", "promise", "number", "state"


@dataclass(frozen=True)
class Progress:
    """An evaluation of a trial, or its end.

    record  the trial's current record. spent_s: core seconds of all trials together
    ended   whether it no longer trains; its state is still `running` if it was interrupted
    """

    record: TrialRecord
    spent_s: float
    ended: bool


def search(
    study: Study, jobs: int, budget_s: float, stop: Callable[[], bool]
) -> Iterator[Progress]:
    """Train trials until the budget is spent, the space is exhausted, or all fail.

    Trials under way are then trained to their end. Must be called while connected to a cluster.

    Args:
        jobs: trials at a time.
        budget_s: core seconds of this and earlier calls together.
        stop: polled; True interrupts the trials after their current update.

    Raises:
        ClusterError: Ray Tune fails.
    """
    with closing(_Search(study, jobs, budget_s, stop)) as running:
        yield from running.events()


class _Search:
    """One call of Ray Tune, in a thread, because in the main thread it would handle Ctrl-C."""

    def __init__(self, study: Study, jobs: int, budget_s: float, stop: Callable[[], bool]) -> None:
        self._study, self._jobs, self._stop = study, jobs, stop
        self._records = {record.number: record for record in study.records()}
        self._stop_file = new_stop_file(study.folder)
        self._news: queue.Queue[tuple[int, bool]] = queue.Queue()
        self._error: Exception | None = None
        self._budget_s = budget_s
        waiting = study.unfinished()
        self._waiting = chain(waiting, study.fresh())
        self._to_resume = len(waiting)
        self._trials: dict[int, Trial] = {}
        self._thread = threading.Thread(target=self._fit, daemon=True)

    def next_trial(self) -> Trial | None:
        """The next trial to begin, or None if there are no more."""
        over = [record for record in self._records.values() if record.state != "running"]
        may_begin = self._spent() < self._budget_s and not self._study.hopeless(over)
        if self._stop() or not (len(self._trials) < self._to_resume or may_begin):
            return None
        trial = next(self._waiting, None)
        if trial is not None:
            self._trials[trial.number] = trial
        return trial

    def _spent(self) -> float:
        return sum(record.core_s for record in self._records.values())

    def events(self) -> Iterator[Progress]:
        self._thread.start()
        alive = True
        while alive or not self._news.empty():
            alive = self._thread.is_alive()
            if self._stop():
                self._stop_file.touch()
            with suppress(queue.Empty):
                number, ended = self._news.get(timeout=_POLL_S)
                yield Progress(self._records[number], self._spent(), ended)
        if self._error is not None:
            raise ClusterError(
                f"Ray Tune failed: {self._error}",
                where=str(self._study.folder),
                remedy="The same command resumes the search",
            ) from self._error

    def take(self, number: int, result: dict[str, Any], ended: bool) -> None:
        """Handle a result from Tune's thread; at the end of a trial, record how it ended."""
        trial = self._trials[number]
        record = read_record(trial.folder) or TrialRecord(number, trial.settings)
        if ended and record.state == "running" and not self._stop_file.exists():
            if _STATE in result:  # the scheduler stopped it
                record.state = "stopped"
            else:
                record.state, record.reason = "failed", "its process was lost"
            write_record(trial.folder, record)
        self._records[number] = record
        if ended or record.state == "running":  # the last result of a trial comes twice
            self._news.put((number, ended))

    def _fit(self) -> None:
        try:
            self._tuner().fit()
        except Exception as error:  # would be lost in the thread
            self._error = error

    def _tuner(self) -> tune.Tuner:
        os.environ |= _SETTINGS
        logging.getLogger("ray.tune").setLevel(logging.ERROR)  # it warns of files we disable
        function = tune.with_parameters(_trial, study=self._study, stop_file=self._stop_file)
        return tune.Tuner(
            tune.with_resources(function, {"cpu": 1}),
            tune_config=tune.TuneConfig(
                search_alg=_searcher(self.next_trial),
                scheduler=_scheduler(self._study, list(self._records.values())),
                num_samples=-1,
                max_concurrent_trials=self._jobs,
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(
                name=_FOLDER,
                storage_path=str(self._study.folder),
                callbacks=[_callback(self.take)],
                failure_config=tune.FailureConfig(max_failures=RETRIES),
                verbose=0,
            ),
        )

    def close(self) -> None:
        if self._thread.is_alive():
            self._stop_file.touch()
            self._thread.join(timeout=_END_S)
        self._stop_file.unlink(missing_ok=True)
        shutil.rmtree(self._study.folder / _FOLDER, ignore_errors=True)


def _trial(config: dict[str, Any], study: Study, stop_file: Path) -> None:
    """Train a trial in a Ray worker, and report each evaluation to Tune."""
    trial = study.trial(config[_NUMBER], config["settings"])
    before = read_record(trial.folder)
    if before is not None:
        for result in _results(before):
            tune.report(result)
    record = train_trial(trial, stop_file.exists, lambda now: tune.report(_results(now)[-1]))
    tune.report(_results(record)[-1])


def _results(record: TrialRecord) -> list[dict[str, Any]]:
    """The results that are reported to Tune, one for each evaluation; at least one."""
    state: State = record.state
    common = {_NUMBER: record.number, _STATE: state}
    found = [{_TIME: point.progress, _PROMISE: point.promise} | common for point in points(record)]
    return found or [{_TIME: 0, _PROMISE: WORST} | common]


def _scheduler(study: Study, records: list[TrialRecord]) -> Any:
    """ASHA, with the finished trials replayed; None if trials are too short to be stopped."""
    if not study.rungs:
        return None
    scheduler = ASHAScheduler(
        time_attr=_TIME,
        metric=_PROMISE,
        mode="max",
        grace_period=study.rungs[0],
        max_t=study.rungs[-1] + 1,
        reduction_factor=REDUCTION,
        stop_last_trials=False,  # a trial ends by itself
    )
    controller: Any = None  # Tune's, which this scheduler does not use
    for record in records:
        if record.state == "running":
            continue  # it reports its own results before it continues
        # With the attribute that the scheduler reads.
        known: Any = SimpleNamespace(trial_id=f"earlier-{record.number}")
        scheduler.on_trial_add(controller, known)
        for result in _results(record):
            scheduler.on_trial_result(controller, known, result)
    return scheduler


def _searcher(next_trial: Callable[[], Trial | None]) -> Any:
    """A Tune searcher that returns one trial after another."""

    class NextTrial(Searcher):
        # Tune pickles its searchers to resume by itself, which is not used here.
        def __reduce__(self) -> tuple[Any, ...]:
            return Searcher, ()

        def save(self, checkpoint_path: str) -> None:
            pass

        def restore(self, checkpoint_path: str) -> None:
            pass

        def suggest(self, trial_id: str) -> Any:
            trial = next_trial()
            if trial is None:
                return Searcher.FINISHED
            return {_NUMBER: trial.number, "settings": trial.settings}

        def on_trial_complete(self, trial_id: str, *_: Any, **__: Any) -> None:
            pass

    return NextTrial(metric=_PROMISE, mode="max")


def _callback(take: Callable[[int, dict[str, Any], bool], None]) -> Any:
    """A Tune callback that passes on the results of each trial."""

    class Callback(tune.Callback):
        # Tune pickles its callbacks to resume by itself, which is not used here.
        def __reduce__(self) -> tuple[Any, ...]:
            return tune.Callback, ()

        def on_trial_result(
            self, iteration: int, trials: list[Any], trial: Any, result: Any, **info: Any
        ) -> None:
            take(trial.config[_NUMBER], result, False)

        def on_trial_complete(
            self, iteration: int, trials: list[Any], trial: Any, **info: Any
        ) -> None:
            take(trial.config[_NUMBER], trial.last_result or {}, True)

        def on_trial_error(
            self, iteration: int, trials: list[Any], trial: Any, **info: Any
        ) -> None:
            take(trial.config[_NUMBER], {}, True)

    return Callback()

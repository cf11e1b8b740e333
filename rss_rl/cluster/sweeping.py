"""A sweep on a Ray cluster: Ray Tune says which run is next, and of a search which trials stop.

Each run takes one CPU. What has been done is in the folders of the runs and nowhere else: Tune's
own folder, whose files could run code when read, is deleted and never read. After any kill the same
sweep begins again: finished runs are not given to Tune, and unfinished ones resume from their
checkpoints. The trials of a search are all given to it again; those that have ended report what
they scored, so that the scheduler knows it.

Source of the scheduler: Li et al., A System for Massively Parallel Hyperparameter Tuning, 2020.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search import Searcher

from rss_rl.cluster.actors import last_line
from rss_rl.errors import ClusterError
from rss_rl.results.sweeps.plan import PlannedRun, mark_stopped
from rss_rl.results.sweeps.search import PROMISE, REDUCTION, UPDATES
from rss_rl.results.sweeps.trial import train_run

_FOLDER, _STOP_FILE = ".tune", ".stop"
_RETRIES = 2
_SETTINGS = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
}
"""No output, no folder to work in, no loggers; signals are ours; not every result has a promise."""


def run_sweep(
    folder: Path,
    runs: Iterator[PlannedRun],
    *,
    jobs: int,
    rungs: Sequence[int] | None = None,
    again: bool = False,
    stop: Callable[[], bool] = lambda: False,
    show: Callable[[PlannedRun, Mapping[str, Any]], None] = lambda run, news: None,
) -> None:
    """Train runs; returns when all have ended. Must be called while connected to a cluster.

    Args:
        folder: on a disk that all nodes share.
        runs: in order; the next one is asked for when a core is free.
        jobs: runs at a time.
        rungs: of a search: counted updates at which trials are compared; None: no search.
        again: replace runs that were made with other settings or data.
        stop: polled; True: runs stop with a checkpoint, and none is begun.
        show: called with what `train_run` yields, and with nothing when a run begins.

    Raises:
        ClusterError: Ray Tune fails.
    """
    os.environ |= _SETTINGS
    for name in ("ray.tune", "ray.train"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what they say is said here
    stop_file = folder / _STOP_FILE
    _clean(folder)
    given: dict[str, PlannedRun] = {}

    class NextRun(_NotPickled, Searcher):
        """Gives Tune one run after another."""

        def suggest(self, trial_id: str) -> Any:
            run = None if stop() else next(runs, None)
            if run is None:
                return Searcher.FINISHED
            given[trial_id] = run
            show(run, {})
            return {"run": run}

        def on_trial_complete(self, trial_id: str, *_: Any, **__: Any) -> None:
            pass

    class Callback(_NotPickled, tune.Callback):
        """Passes on what runs yield, and a stop that is asked for."""

        def on_step_begin(self, iteration: int, trials: list[Any], **_: Any) -> None:
            if stop():
                stop_file.touch()

        def on_trial_result(
            self, iteration: int, trials: list[Any], trial: Any, result: Any, **_: Any
        ) -> None:
            if "outcome" not in result:  # which comes again, with the end of the trial
                show(given[trial.trial_id], result)

        def on_trial_complete(
            self, iteration: int, trials: list[Any], trial: Any, **_: Any
        ) -> None:
            news, run = trial.last_result or {}, given[trial.trial_id]
            outcome = "stopped"
            if "outcome" not in news and not stop_file.exists():  # the scheduler stopped it
                mark_stopped(run)
                outcome = "stopped early"
            show(run, {"outcome": outcome} | news)

        def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **_: Any) -> None:
            news = {"outcome": "failed", "reason": "its process was lost"}
            show(given[trial.trial_id], news)

    function = tune.with_parameters(
        _trial, stop_file=stop_file, searches=rungs is not None, again=again
    )
    tuner = tune.Tuner(
        tune.with_resources(function, {"cpu": 1}),
        tune_config=tune.TuneConfig(
            search_alg=NextRun(metric=PROMISE, mode="max"),
            scheduler=_scheduler(rungs),
            num_samples=-1,
            max_concurrent_trials=jobs,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            name=_FOLDER,
            storage_path=str(folder),
            callbacks=[Callback()],
            failure_config=tune.FailureConfig(max_failures=_RETRIES),
            verbose=0,
        ),
    )
    try:
        tuner.fit()
    except Exception as error:
        raise ClusterError(
            f"Ray Tune failed: {last_line(error)}",
            where=str(folder),
            remedy="The same command goes on with what is finished",
        ) from error
    finally:
        _clean(folder)


class _NotPickled:
    """Tune pickles its searchers and callbacks to resume by itself, which is not used here."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _NotPickled, ()

    def save(self, checkpoint_path: str) -> None:
        """Nothing is saved."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing is restored."""


def _clean(folder: Path) -> None:
    (folder / _STOP_FILE).unlink(missing_ok=True)
    shutil.rmtree(folder / _FOLDER, ignore_errors=True)


def _trial(config: dict[str, Any], stop_file: Path, searches: bool, again: bool) -> None:
    """Train a run in a Ray worker, and report to Tune what it yields."""
    for news in train_run(config["run"], stop_file, searches=searches, again=again):
        tune.report(news)


def _scheduler(rungs: Sequence[int] | None) -> Any:
    """Asynchronous successive halving; None where trials are too short to be stopped."""
    if not rungs:
        return None
    return ASHAScheduler(
        time_attr=UPDATES,
        metric=PROMISE,
        mode="max",
        grace_period=rungs[0],
        max_t=rungs[-1] + 1,
        reduction_factor=REDUCTION,
        stop_last_trials=False,  # a trial ends by itself
    )

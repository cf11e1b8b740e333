"""Runs of a table or a frontier on a Ray cluster, several at a time, of one CPU each.

Those of a table are Ray tasks, those of a frontier trials of Ray Tune, which needs rss-rl[tune].
Either starts a run again whose process was lost; a run has checkpoints in a directory of its own,
so that it resumes, now or by a later command.
"""

from __future__ import annotations

__all__ = [
    "NO_TUNE_LOGGERS",
    "RETRIES",
    "TUNE_FOLDER",
    "RayWorkers",
    "TuneWorkers",
    "check_tune",
    "new_stop_file",
]

import os
import queue
import shutil
import socket
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from rss_rl.cluster.actors import last_line
from rss_rl.errors import ConfigError, RssError
from rss_rl.results.tables.execute import RunResult, train_run
from rss_rl.results.tables.plan import PlannedRun, state_of
from rss_rl.training.status import read_status

RETRIES = 2
_POLL_S = 0.5
TUNE_FOLDER = ".tune"
NO_TUNE_LOGGERS = "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"


def _train(run: PlannedRun, overwrite: bool, stop_file: Path) -> RunResult:
    """Train a run in a process of Ray's until it ends, or the file that asks it to stop appears."""
    if not stop_file.parent.is_dir():
        reason = f"{stop_file.parent}: is not on this machine. Give --out on a shared disk"
        return RunResult(run, "failed", 0.0, reason)
    if stop_file.exists():  # the run waited for its turn until now
        return RunResult(run, "stopped", 0.0)
    # A run that is started again, as its process was lost, resumes what that one saved.
    return train_run(run, overwrite and state_of(run) == "changed", stop_file.exists)


def new_stop_file(folder: Path) -> Path:
    """A file of this process's own, whose presence asks the runs to stop."""
    folder.mkdir(parents=True, exist_ok=True)
    stop_file = folder / f".stop-{socket.gethostname()}-{os.getpid()}"
    stop_file.unlink(missing_ok=True)
    return stop_file


def _latest(run: PlannedRun) -> str | None:
    """Phase and update of a run; None where it has not started, or is being replaced."""
    try:
        status = read_status(str(run.path))
    except (RssError, OSError):
        return None
    if status.phase is None or status.state != "running":
        return None
    return f"{status.phase} {status.update}" + (f"/{status.updates}" if status.updates else "")


class RayWorkers:
    """Trains runs as Ray tasks; a `Workers`.

    Args:
        jobs: runs at a time.
        folder: of the table; on a disk that all nodes share.
        stop: polled while waiting; True lets the runs end after their present update.
        progress: takes the latest line about a run.
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
        """Remove the file that asks runs to stop."""
        self.stop_file.unlink(missing_ok=True)


def check_tune() -> None:
    """Refuse to continue without Ray Tune.

    Raises:
        ConfigError: naming the extra that has it.
    """
    missing = [name for name in ("pandas", "tensorboardX") if not find_spec(name)]
    if missing:
        raise ConfigError(
            f"Ray Tune needs {' and '.join(missing)}, which are not installed",
            remedy="Install rss-rl[tune], or make one run at a time with --jobs 1",
        )


class TuneWorkers:
    """Trains runs as trials of Ray Tune; a `Workers`.

    All runs are submitted before the first is trained, as Tune wants to know its trials. Arguments
    as of `RayWorkers`.

    Raises:
        ConfigError: Ray Tune is not installed.
    """

    def __init__(
        self,
        jobs: int,
        folder: Path,
        stop: Callable[[], bool],
        progress: Callable[[PlannedRun, str], None],
    ) -> None:
        check_tune()
        self._jobs, self._folder, self._stop, self._progress = jobs, folder, stop, progress
        self.stop_file = new_stop_file(folder)
        self._runs: list[PlannedRun] = []
        self._overwrite = False
        self._running: dict[int, PlannedRun] = {}
        self._results: queue.Queue[tuple[int, RunResult]] = queue.Queue()
        self._thread: threading.Thread | None = None
        self._error = "Tune lost its trial"

    def free(self) -> bool:
        """See `Workers`."""
        return self._thread is None

    def submit(self, run: PlannedRun, overwrite: bool) -> None:
        """See `Workers`."""
        self._running[len(self._runs)] = run
        self._runs.append(run)
        self._overwrite = self._overwrite or overwrite

    def busy(self) -> bool:
        """See `Workers`."""
        return bool(self._running)

    def collect(self, timeout_s: float) -> list[RunResult]:
        """See `Workers`; the first call starts Tune."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._fit, daemon=True)
            self._thread.start()
        if self._stop():
            self.stop_file.touch()
        ended = not self._thread.is_alive()  # all its results are in the queue then
        results = []
        try:
            number, result = self._results.get(timeout=timeout_s)
            if self._running.pop(number, None):
                results.append(result)
        except queue.Empty:
            if ended:
                outcome: Any = "stopped" if self._stop() else "failed"
                left, self._running = self._running, {}
                return [RunResult(run, outcome, 0.0, self._error) for run in left.values()]
        for run in self._running.values():
            if line := _latest(run):
                self._progress(run, line)
        return results

    def _fit(self) -> None:
        from ray import tune

        os.environ[NO_TUNE_LOGGERS] = "1"
        trial = tune.with_parameters(
            _trial, runs=self._runs, stop_file=self.stop_file, overwrite=self._overwrite
        )
        tuner = tune.Tuner(
            tune.with_resources(trial, {"cpu": 1}),
            param_space={"run": tune.grid_search(list(range(len(self._runs))))},
            # Without reuse a stop would start a process for each run that waits, to end it.
            tune_config=tune.TuneConfig(max_concurrent_trials=self._jobs, reuse_actors=True),
            run_config=tune.RunConfig(
                name=TUNE_FOLDER,
                storage_path=str(self._folder.absolute()),
                callbacks=[_callback(self._take)],
                failure_config=tune.FailureConfig(max_failures=RETRIES),
                verbose=0,
            ),
        )
        try:
            tuner.fit()
        except Exception as error:  # a thread's would be lost
            self._error = f"{type(error).__name__}: {error}"

    def _take(self, number: int, result: dict[str, Any]) -> None:
        names = ("outcome", "wall_s", "reason")
        lost = {"outcome": "failed", "wall_s": 0.0, "reason": "its process was lost"}
        found = {name: result.get(name, lost[name]) for name in names}
        self._results.put((number, RunResult(self._runs[number], **found)))

    def close(self) -> None:
        """Wait for Tune to end; remove the file that asks runs to stop, and Tune's own files."""
        if self._thread is not None:
            self.stop_file.touch()
            self._thread.join(timeout=30)
        self.stop_file.unlink(missing_ok=True)
        shutil.rmtree(self._folder / TUNE_FOLDER, ignore_errors=True)


def _trial(
    config: dict[str, Any], runs: list[PlannedRun], stop_file: Path, overwrite: bool
) -> None:
    from ray import tune

    result = _train(runs[config["run"]], overwrite, stop_file)
    reported = {"outcome": result.outcome, "wall_s": result.wall_s, "reason": result.reason}
    tune.report({"run": config["run"]} | reported)


def _callback(take: Callable[[int, dict[str, Any]], None]) -> Any:
    """A callback of Tune's that passes on how each trial ended."""
    from ray import tune

    class Callback(tune.Callback):
        # Tune saves its callbacks to resume by itself, which is not used here.
        def __reduce__(self) -> tuple[Any, ...]:
            return tune.Callback, ()

        def on_trial_complete(
            self, iteration: int, trials: list[Any], trial: Any, **info: Any
        ) -> None:
            take(trial.config["run"], trial.last_result or {})

        def on_trial_error(
            self, iteration: int, trials: list[Any], trial: Any, **info: Any
        ) -> None:
            take(trial.config["run"], {})

    return Callback()

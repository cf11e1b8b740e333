"""Runs of a frontier as trials of Ray Tune, several at a time, of one CPU each.

Tune says which trial runs when and starts a lost one again; a trial is a run in a directory of its
own with checkpoints of its own, so that Tune's are not needed and any later command goes on.
"""

from __future__ import annotations

__all__ = ["TuneWorkers", "check_tune"]

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

from rss_rl.errors import ConfigError, RssError
from rss_rl.results.tables.plan import PlannedRun, state_of
from rss_rl.results.tables.work import Ended, make_run
from rss_rl.training.status import read_status

_RETRIES = 2
_TUNE_FOLDER = ".tune"
_QUIET = "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"


def check_tune() -> None:
    """Refuse to go on without Ray Tune.

    Raises:
        ConfigError: naming the extra that has it.
    """
    missing = [name for name in ("pandas", "tensorboardX") if not find_spec(name)]
    if missing:
        raise ConfigError(
            f"Ray Tune needs {' and '.join(missing)}, which are not installed",
            remedy="Install rss-rl[tune], or make one run at a time with --jobs 1",
        )


def _trial(config: dict[str, Any], runs: list[PlannedRun], stop_file: str, again: bool) -> None:
    """The trial, in a process of Ray's; a stop is asked by a file, which outlives a process."""
    from ray import tune

    run = runs[config["run"]]
    if Path(stop_file).exists():  # it waited for its turn until now
        told: dict[str, Any] = {"outcome": "stopped", "wall_s": 0.0, "reason": ""}
        tune.report({"run": config["run"]} | told)
        return
    if not Path(stop_file).parent.is_dir():
        reason = f"{Path(stop_file).parent}: not on this machine; give --out on a shared disk"
        tune.report({"run": config["run"], "outcome": "failed", "wall_s": 0.0, "reason": reason})
        return
    # A trial that is tried again after its process was lost goes on with what that one made.
    overwrite = again and state_of(run) == "changed"
    ended = make_run(run, overwrite, Path(stop_file).exists)
    told = {"outcome": ended.outcome, "wall_s": ended.wall_s, "reason": ended.reason}
    tune.report({"run": config["run"]} | told)


class TuneWorkers:
    """Makes runs on the cluster that this process has joined; a `Workers`.

    All runs are taken before the first is made, as Tune wants to know its trials.

    Args:
        jobs: runs at a time.
        folder: of the frontier; on a disk that all nodes share.
        stop: asked while waiting; True lets the runs end after their present update.
        says: told the newest of each run.

    Raises:
        ConfigError: Ray Tune is not installed.
    """

    def __init__(
        self,
        jobs: int,
        folder: Path,
        stop: Callable[[], bool],
        says: Callable[[PlannedRun, str], None],
    ) -> None:
        check_tune()
        self._jobs, self._folder, self._stop, self._says = jobs, folder, stop, says
        self.stop_file = folder / f".stop-{socket.gethostname()}-{os.getpid()}"
        folder.mkdir(parents=True, exist_ok=True)
        self.stop_file.unlink(missing_ok=True)
        self._runs: list[PlannedRun] = []
        self._again = False
        self._left: dict[int, PlannedRun] = {}
        self._ended: queue.Queue[Ended] = queue.Queue()
        self._thread: threading.Thread | None = None
        self._error = "Tune lost its trial"

    def room(self) -> bool:
        """See `Workers`."""
        return self._thread is None

    def submit(self, run: PlannedRun, overwrite: bool) -> None:
        """See `Workers`."""
        self._left[len(self._runs)] = run
        self._runs.append(run)
        self._again = self._again or overwrite

    def busy(self) -> bool:
        """See `Workers`."""
        return bool(self._left)

    def collect(self, timeout_s: float) -> list[Ended]:
        """See `Workers`; the first call sets Tune to work."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._fit, daemon=True)
            self._thread.start()
        if self._stop():
            self.stop_file.touch()
        try:
            ended = [self._ended.get(timeout=timeout_s)]
        except queue.Empty:
            ended = self._lost() if not self._thread.is_alive() else []
        for run in self._left.values():
            self._tell(run)
        gone = [item.run.label for item in ended]
        self._left = {n: run for n, run in self._left.items() if run.label not in gone}
        return ended

    def _lost(self) -> list[Ended]:
        """Tune is at its end, and says nothing of these."""
        time.sleep(0.1)
        if not self._ended.empty():
            return []
        outcome: Any = "stopped" if self._stop() else "failed"
        return [Ended(run, outcome, 0.0, self._error) for run in self._left.values()]

    def _fit(self) -> None:
        from ray import tune

        os.environ[_QUIET] = "1"
        trial = tune.with_parameters(
            _trial, runs=self._runs, stop_file=str(self.stop_file), again=self._again
        )
        tuner = tune.Tuner(
            tune.with_resources(trial, {"cpu": 1}),
            param_space={"run": tune.grid_search(list(range(len(self._runs))))},
            # A stop would start a process for each run that waits, to be told so.
            tune_config=tune.TuneConfig(max_concurrent_trials=self._jobs, reuse_actors=True),
            run_config=tune.RunConfig(
                name=_TUNE_FOLDER,
                storage_path=str(self._folder.absolute()),
                callbacks=[_notice(self._take)],
                failure_config=tune.FailureConfig(max_failures=_RETRIES),
                verbose=0,
            ),
        )
        try:
            tuner.fit()
        except Exception as error:  # of a thread nobody would see it
            self._error = f"{type(error).__name__}: {error}"

    def _take(self, number: int, result: dict[str, Any]) -> None:
        run = self._runs[number]
        if "outcome" not in result:
            self._ended.put(Ended(run, "failed", 0.0, "its process was lost"))
            return
        self._ended.put(Ended(run, result["outcome"], result["wall_s"], result["reason"]))

    def _tell(self, run: PlannedRun) -> None:
        try:
            status = read_status(str(run.path))
        except (RssError, OSError):  # not begun, or just being replaced
            return
        if status.phase is not None and status.state == "running":
            of = "" if status.updates is None else f"/{status.updates}"
            self._says(run, f"{status.phase} {status.update}{of}")

    def close(self) -> None:
        """Wait for Tune to end; remove the file that asks runs to stop, and what Tune noted."""
        if self._thread is not None:
            self.stop_file.touch()
            self._thread.join(timeout=30)
        self.stop_file.unlink(missing_ok=True)
        shutil.rmtree(self._folder / _TUNE_FOLDER, ignore_errors=True)


def _notice(take: Callable[[int, dict[str, Any]], None]) -> Any:
    """A callback of Tune's that passes on how each trial ended."""
    from ray import tune

    class Notice(tune.Callback):
        # Tune saves its callbacks for a resumption of its own, which nobody asks for.
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

    return Notice()

"""A sweep on a Ray cluster: each run is a task, which takes one CPU.

What has been done is in the folders of the runs and nowhere else. After any kill the same sweep
begins again: finished runs are left out, and unfinished ones resume from their checkpoints, as
those do whose process is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from rss_rl.cluster.actors import last_line
from rss_rl.results.sweeps.plan import PlannedRun
from rss_rl.results.sweeps.trial import train_run

_STOP_FILE = ".stop"
_RETRIES = 2
_POLL_S = 0.5


def run_sweep(
    folder: Path,
    runs: Iterator[PlannedRun],
    *,
    jobs: int,
    again: bool,
    stop: Callable[[], bool],
    show: Callable[[PlannedRun, str, str], None],
) -> None:
    """Train runs; returns when all have ended. Must be called while connected to a cluster.

    Args:
        folder: on a disk that all nodes share.
        runs: in order.
        jobs: runs at a time.
        again: replace runs that were made with other settings or data.
        stop: polled; True: runs stop with a checkpoint, and none is begun.
        show: called with a run and `begins`, and with what `train_run` returns.
    """
    stop_file = folder / _STOP_FILE
    stop_file.unlink(missing_ok=True)
    task = ray.remote(num_cpus=1, max_retries=_RETRIES)(_train)
    running: dict[Any, PlannedRun] = {}
    try:
        while True:
            if stop():
                stop_file.touch()
            while len(running) < jobs and not stop_file.exists():
                if (run := next(runs, None)) is None:
                    break
                show(run, "begins", "")
                running[task.remote(run, stop_file, again)] = run
            if not running:
                return
            for ended in ray.wait([*running], timeout=_POLL_S)[0]:
                show(running.pop(ended), *_outcome(ended))
    finally:
        stop_file.unlink(missing_ok=True)


def _train(run: PlannedRun, stop_file: Path, again: bool) -> tuple[str, str]:
    """`train_run` in a worker, which may be on another machine."""
    if not stop_file.parent.is_dir():
        return "failed", f"{stop_file.parent} is not on this machine. Give a shared --out"
    return train_run(run, stop_file.exists, again)


def _outcome(ended: Any) -> tuple[str, str]:
    try:
        outcome: tuple[str, str] = ray.get(ended)
    except RayError as error:
        return "failed", f"its process was lost: {last_line(error)}"
    return outcome

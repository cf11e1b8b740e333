"""Training one run of a sweep, in the process that calls it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from rss_rl.components import Trust
from rss_rl.data.store import open_prepared
from rss_rl.errors import RssError
from rss_rl.results.linear import add_linear
from rss_rl.results.sweeps.plan import PlannedRun, state_of
from rss_rl.results.trojan import add_trojan
from rss_rl.runs.run_directory import CONFIG_FILE, REPORT_FILE, lock_holder
from rss_rl.training.run import train

_LOCK_WAIT_S, _LOCK_PAUSE_S = 60.0, 0.25


def train_run(run: PlannedRun, stop: Callable[[], bool], again: bool) -> tuple[str, str]:
    """Train or resume a run; raises no Exception.

    Args:
        stop: polled; True: the run stops with a checkpoint.
        again: replace a run that was made with other settings or data.

    Returns:
        The outcome, which is finished, stopped or failed, and the reason of a failure.
    """
    try:
        _train(run, stop, again)
        return ("finished" if state_of(run) == "finished" else "stopped"), ""
    except RssError as error:
        return "failed", str(error)
    except Exception as error:  # one run that fails must not stop the others
        return "failed", f"{type(error).__name__}: {error}"


def _train(run: PlannedRun, stop: Callable[[], bool], again: bool) -> None:
    _wait_for_lock(run.path)
    overwrite = again and state_of(run) == "changed"
    if state_of(run) == "finished" or stop():
        return
    for _ in train(run.config, run.path, resume=not overwrite, overwrite=overwrite, stop=stop):
        pass
    if run.judged and (run.path / REPORT_FILE).is_file():
        _judge(run)


def _judge(run: PlannedRun) -> None:
    """Add what the report lacks, which needs the weights, and delete these."""
    if {"linear", "weights"} & {*run.modes}:
        add_linear(run.path, open_prepared(run.config.data))
    add_trojan(run.path, "test", Trust.of([run.config.model_dump(mode="json")]))
    shutil.rmtree(run.path / "checkpoints", ignore_errors=True)


def _wait_for_lock(run: Path) -> None:
    """Wait for the run's lock: the processes of a killed sweep may live on for some seconds."""
    deadline = time.monotonic() + _LOCK_WAIT_S
    while (run / CONFIG_FILE).is_file() and lock_holder(run) and time.monotonic() < deadline:
        time.sleep(_LOCK_PAUSE_S)

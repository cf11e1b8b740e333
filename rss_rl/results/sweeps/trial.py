"""Training one run of a sweep, in the process that calls it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rss_rl.errors import CheckpointError, RssError
from rss_rl.results.sweeps.plan import ENDED, PlannedRun, state_of
from rss_rl.results.sweeps.search import evaluations
from rss_rl.runs.run_directory import CONFIG_FILE, lock_holder
from rss_rl.training.attempts import SPLITS
from rss_rl.training.run import train
from rss_rl.training.trainer import Evaluated

_LOCK_WAIT_S, _LOCK_PAUSE_S = 60.0, 0.25


def train_run(
    run: PlannedRun, stop_file: Path, *, searches: bool, again: bool
) -> Iterator[dict[str, Any]]:
    """Train or resume a run; raises no Exception.

    Yields:
        For a search, `updates` and `promise` of each evaluation, earlier ones first; see
        `evaluations`. At the end `outcome`, which is finished,
        stopped or failed, and the `reason` of a failure.

    Args:
        stop_file: when it appears, the run stops with a checkpoint.
        searches: a trial of a search, which is not scored on test.
        again: replace a run that was made with other settings or data.
    """
    try:
        yield from _train(run, stop_file, searches, again)
        yield {"outcome": "finished" if state_of(run) in ENDED else "stopped"}
    except RssError as error:
        yield {"outcome": "failed", "reason": str(error)}
    except Exception as error:  # one run that fails must not stop the others
        yield {"outcome": "failed", "reason": f"{type(error).__name__}: {error}"}


def _train(
    run: PlannedRun, stop_file: Path, searches: bool, again: bool
) -> Iterator[dict[str, Any]]:
    if not stop_file.parent.is_dir():
        raise CheckpointError(
            "is not on this machine", where=str(stop_file.parent), remedy="Give a shared --out"
        )
    _wait_for_lock(run.path)
    overwrite = again and state_of(run) == "changed"
    if searches:
        yield from evaluations(run.path, run.config)
    if state_of(run) in ENDED or stop_file.exists():
        return
    for event in train(
        run.config,
        run.path,
        resume=not overwrite,
        overwrite=overwrite,
        stop=stop_file.exists,
        splits=("dev",) if searches else SPLITS,
    ):
        if searches and isinstance(event, Evaluated):
            yield from evaluations(run.path, run.config)[-1:]  # none in phases before selections


def _wait_for_lock(run: Path) -> None:
    """Wait for the run's lock: the processes of a killed sweep may live on for some seconds."""
    deadline = time.monotonic() + _LOCK_WAIT_S
    while (run / CONFIG_FILE).is_file() and lock_holder(run) and time.monotonic() < deadline:
        time.sleep(_LOCK_PAUSE_S)

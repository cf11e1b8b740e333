"""Training from the command line: progress, interruption, and the choice of the samplers' home.

Needs torch; Ray only where the configuration asks for it.
"""

from __future__ import annotations

__all__ = ["run_training"]

import os
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from rss_rl.cli.interrupt import Interruption
from rss_rl.cli.progress import make_progress
from rss_rl.config import RunConfig
from rss_rl.data.store import Prepared
from rss_rl.runtime.backend import Backend
from rss_rl.runtime.run import Finished, local_backend, train
from rss_rl.runtime.trainer import Stopped


def run_training(
    config: RunConfig,
    path: Path,
    out: Console,
    *,
    resume: bool = False,
    overwrite: bool = False,
    storage: str | None = None,
    take_over: bool = False,
) -> dict[str, Any]:
    """Train with progress on `out`; returns the final report.

    Args: as of `rss_rl.runtime.run.train`.

    Raises:
        typer.Exit: stopped by Ctrl-C or SIGTERM, after a checkpoint.
        RssError: any expected failure.
    """
    with make_progress(out) as progress, Interruption(progress.stopping) as interruption:

        events = train(
            config,
            path,
            roles=roles,
            resume=resume,
            overwrite=overwrite,
            stop=interruption.asked,
            storage=storage,
            take_over=take_over,
        )
        stopped = None
        for event in events:
            progress.show(event)
            if isinstance(event, Finished):
                return event.report
            stopped = event if isinstance(event, Stopped) else None
    _say_stopped(out, path, stopped, storage)
    raise typer.Exit(interruption.exit_code)


def _say_stopped(out: Console, path: Path, stopped: Stopped | None, storage: str | None) -> None:
    update = "?" if stopped is None else stopped.update
    out.print(f"Stopped after update {update}; everything up to there is saved. Go on with:")
    kept = "" if storage is None else f" --storage {storage}"
    out.print(f"  rss-rl train --resume {path}{kept}", soft_wrap=True, markup=False)

"""Training from the command line: progress, interruption, and the choice of the samplers' home.

Needs torch; Ray only where the configuration asks for it.
"""

from __future__ import annotations

__all__ = ["run_training"]

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
    config: RunConfig, path: Path, out: Console, *, resume: bool = False, overwrite: bool = False
) -> dict[str, Any]:
    """Train with progress on `out`; returns the final report.

    Raises:
        typer.Exit: stopped by Ctrl-C or SIGTERM, after a checkpoint.
        RssError: any expected failure.
    """
    with make_progress(out) as progress, Interruption(progress.stopping) as interruption:

        def backend(run: RunConfig, prepared: Prepared, data: str) -> Backend:
            if run.sampler.backend == "local":
                return local_backend(run, prepared, data)
            from rss_rl.runtime.ray_backend import RayBackend

            made = RayBackend(run, data)
            interruption.install()  # starting Ray puts a handler of its own on SIGTERM
            return made

        events = train(
            config,
            path,
            backend=backend,
            resume=resume,
            overwrite=overwrite,
            stop=interruption.asked,
        )
        stopped = None
        for event in events:
            progress.show(event)
            if isinstance(event, Finished):
                return event.report
            if isinstance(event, Stopped):
                stopped = event
    update = "?" if stopped is None else stopped.update
    out.print(f"Stopped after update {update}; everything up to there is saved. Go on with:")
    out.print(f"  rss-rl train --resume {path}", soft_wrap=True, markup=False)
    raise typer.Exit(interruption.exit_code)

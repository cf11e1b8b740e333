"""Training from the command line: progress, interruption, and the choice of the samplers' home.

Needs torch; Ray only where the configuration asks for it.
"""

from __future__ import annotations

__all__ = ["Joining", "run_training"]

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from rss_rl.cli.interrupt import Interruption
from rss_rl.cli.progress import make_progress
from rss_rl.config import RunConfig
from rss_rl.ops.native import load_ahead
from rss_rl.runtime.roles import LocalRoles, Roles
from rss_rl.runtime.run import Finished, train
from rss_rl.runtime.trainer import Stopped


@dataclass(frozen=True)
class Joining:
    """How a cluster is joined or started, where the configuration asks for Ray.

    address    host:port of a head, 'auto', or None: RAY_ADDRESS, or a cluster of this machine
    insecure   also use a cluster that checks no token
    dashboard  of a cluster started here
    """

    address: str | None = None
    insecure: bool = False
    dashboard: bool = False

    def options(self) -> str:
        """The command line's options that were given, as `--address, --insecure`."""
        given = {
            "--address": self.address is not None,
            "--insecure": self.insecure,
            "--dashboard": self.dashboard,
        }
        return ", ".join(option for option, here in given.items() if here)


_HERE = Joining()


def run_training(
    config: RunConfig,
    path: Path,
    out: Console,
    *,
    joining: Joining = _HERE,
    resume: bool = False,
    overwrite: bool = False,
    storage: str | None = None,
    take_over: bool = False,
) -> dict[str, Any]:
    """Train with progress on `out`; returns the final report.

    Args: as of `rss_rl.runtime.run.train`; `joining` is of no account without Ray.

    Raises:
        typer.Exit: stopped by Ctrl-C or SIGTERM, after a checkpoint.
        RssError: any expected failure.
    """
    with (
        make_progress(out) as progress,
        Interruption(progress.stopping) as interruption,
        _roles(config, joining, out) as roles,
    ):
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


@contextmanager
def _roles(config: RunConfig, joining: Joining, out: Console) -> Iterator[Roles]:
    """Who works for the run; a cluster that was started for it ends with it."""
    if config.sampler.backend == "local":
        if given := joining.options():
            note = f"{given}: no effect with sampler.backend=local, which uses no cluster"
            out.print(note, soft_wrap=True, markup=False)
        yield LocalRoles()
        return
    from rss_rl.cluster.connection import connect, shutdown
    from rss_rl.cluster.roles import RayRoles

    samplers = config.sampler.actors * config.sampler.threads
    learners = config.learner.actors * config.learner.threads
    if config.model.attention != "eager":
        load_ahead()  # Ray takes as long to start as a compiler takes
    cluster = connect(
        joining.address,
        cores=samplers + learners,
        dashboard=joining.dashboard,
        insecure=joining.insecure,
    )
    try:
        for note in (*cluster.notes, *_thread_notes(config, cluster.started_here)):
            out.print(note, soft_wrap=True, markup=False)
        yield RayRoles()
    finally:
        shutdown(cluster)


def _thread_notes(config: RunConfig, one_machine: bool) -> list[str]:
    """Who computes with how many threads; too many of them wait for each other at every step."""
    learner, sampler = config.learner, config.sampler
    learners = max(1, learner.actors)
    wanted = learners * learner.threads + sampler.actors * sampler.threads
    cores = os.cpu_count() or 1
    note = (
        f"Threads: {learners} x {learner.threads} learning, {sampler.actors} x {sampler.threads}"
        f" sampling; this machine has {cores} cores"
    )
    takes_turns = sampler.max_policy_lag == 0
    if one_machine and wanted > cores and not takes_turns:
        note += ". More threads than cores: fewer sampler.actors would be faster"
    return [note]


def _say_stopped(out: Console, path: Path, stopped: Stopped | None, storage: str | None) -> None:
    update = "?" if stopped is None else stopped.update
    out.print(f"Stopped after update {update}; everything up to there is saved. Go on with:")
    kept = "" if storage is None else f" --storage {storage}"
    out.print(f"  rss-rl train --resume {path}{kept}", soft_wrap=True, markup=False)

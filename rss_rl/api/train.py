"""Training in one call, with progress and a clean stop on Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from rss_rl.api.options import (
    Address,
    Config,
    Directory,
    Duration,
    Overrides,
    PythonOnly,
    TakeOver,
    TrustPlugins,
    Typed,
)
from rss_rl.api.terminal import SafeConsole, say

if TYPE_CHECKING:
    from rich.console import Console

    from rss_rl.api.planning import Plan
    from rss_rl.api.run import Run
    from rss_rl.config import RunConfig
    from rss_rl.training.run import RunEvent
    from rss_rl.training.stopping import TimeBudget

_STOPPING = "stopping after this update; Ctrl-C again quits at once"


def train(
    config: Annotated[Config | RunConfig, Typed(str), Parameter(name="CONFIG|RUN")],
    overrides: Overrides = (),
    *,
    out: Directory = None,
    resume: bool = False,
    overwrite: bool = False,
    storage: Annotated[str | None, Parameter(metavar="URI")] = None,
    take_over: TakeOver = False,
    address: Address = None,
    time: Duration = None,
    trust_plugins: TrustPlugins = False,
    callbacks: PythonOnly[Sequence[Callable[[RunEvent], None]]] = (),
    console: PythonOnly[Console | None] = None,
) -> Run:
    """Train a classifier and its selection policy, and score them on dev and test.

    Press Ctrl-C once (or send SIGTERM) to stop after the current update with a checkpoint, twice to
    quit immediately. A run that was stopped is not `finished`; `run.resume()`, or the same command
    with --resume, continues it. `rss-rl config show` documents all settings.

    Args:
        config: A YAML file, a name that `rss-rl config list` shows, or with --resume the directory
            of a run. In Python also a tree of settings or a `RunConfig`.
        overrides: Settings that differ from the file: `learner.policy.l2=1e-4 phases.0.steps=500`.
        out: Directory of the run. Default: runs/CONFIG-seedSEED.
        resume: Resume from the last checkpoint, if there is one. A finished run stays as it is.
        overwrite: Replace an existing run in the directory.
        storage: Directory or URI (s3://, gs://, ...) to copy the run to at each checkpoint. With
            --resume, a machine without the run fetches it from there.
        address: Ray cluster to use, or 'auto' for the one running on this machine. Default:
            RAY_ADDRESS, or a new cluster on this machine that ends with the run.
        callbacks: called with each typed event (`rss_rl.training.run.RunEvent`).
        console: for progress; default: standard output.

    Raises:
        RssError: any expected failure.

    Examples:
        `rss-rl train sick data=data/sick` trains in `runs/sick-seed0`.

        `rss-rl train sick seed=3 sampler.backend=ray sampler.actors=4 --out runs/third`

        `rss-rl train --resume runs/third` resumes a run that was stopped or killed.

        `rss-rl train sick --out runs/a --storage s3://bucket/a --resume` copies the run to the
        storage while it trains. On a new machine it resumes from there.
    """
    from rss_rl.api import planning
    from rss_rl.api.run import Run
    from rss_rl.components import EVERYTHING, NOTHING
    from rss_rl.config import settings
    from rss_rl.errors import ConfigError
    from rss_rl.models.build import check_defaults
    from rss_rl.reading.models import open_data
    from rss_rl.training.costs import measure_costs
    from rss_rl.training.stopping import TimeBudget, seconds

    check_defaults()
    if resume and overwrite:
        raise ConfigError("--resume continues a run, --overwrite replaces it: give one of them")
    total = None if time is None else seconds(time)
    trusted = EVERYTHING if trust_plugins else NOTHING
    kept = storage if resume else None
    plan = planning.plan_training(config, settings(overrides), out, kept, resume, trusted)
    planning.check_lasting(plan.path, storage)
    shown = console or SafeConsole(highlight=False)
    # With a storage, a finished run is opened again: its last upload may have failed.
    if resume and storage is None and planning.is_finished(plan):
        shown.print("The run is finished; its report:")
        return Run(plan.path, trust_plugins=plan.trust)
    budget = None
    if total is not None:
        measured = measure_costs(plan.config, open_data(plan.config))
        budget = TimeBudget(plan.config, total, None if measured is None else measured[0])
    return carry_out(
        plan,
        budget,
        resume=resume,
        overwrite=overwrite,
        storage=storage,
        take_over=take_over,
        address=address,
        callbacks=callbacks,
        console=shown,
    )


def carry_out(
    plan: Plan,
    budget: TimeBudget | None,
    *,
    console: Console,
    resume: bool,
    overwrite: bool,
    storage: str | None = None,
    take_over: bool = False,
    address: str | None = None,
    callbacks: Sequence[Callable[[RunEvent], None]] = (),
) -> Run:
    """Train what was planned within a budget of time; the rest as of `train`."""
    import torch

    from rss_rl.api import planning
    from rss_rl.api.interruption import Interruption
    from rss_rl.api.progress import shown_progress
    from rss_rl.api.run import Run
    from rss_rl.results.sentences import run_warnings
    from rss_rl.training.run import train as train_events
    from rss_rl.training.status_writer import RunProgress
    from rss_rl.training.trainer import Stopped

    say(console, f"Run: {plan.path}")
    with (
        shown_progress(console, RunProgress(plan.config, budget)) as show,
        # Learners in other processes finish their update and are then stopped.
        Interruption(_STOPPING, watches=not plan.config.learner.actors) as interruption,
        planning.workers(plan.config, address, console) as roles,
        torch.inference_mode(False),
        torch.enable_grad(),
    ):
        stopped = None
        events = train_events(
            plan.config,
            plan.path,
            roles=roles,
            resume=resume,
            overwrite=overwrite,
            stop=interruption.asked,
            storage=storage,
            take_over=take_over,
            budget=budget,
        )
        for event in events:
            try:
                show(event)
                for callback in callbacks:
                    callback(event)
            except Exception as error:
                events.throw(error)  # the run ends by it, and notes why
            stopped = event if isinstance(event, Stopped) else None
    run = Run(plan.path, trust_plugins=plan.trust)
    if stopped is not None:
        run.stopped_by = interruption.signal
        planning.say_stopped(console, plan.path, stopped, storage)
    elif run.finished:
        for warning in run_warnings(run.report, plan.config.reward.target_share):
            say(console, f"Warning: {warning}", "yellow")
    return run

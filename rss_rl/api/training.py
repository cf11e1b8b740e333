"""Training from Python and the command line: one call, with progress and a clean stop on Ctrl-C.

Needs torch; Ray only if the configuration uses it.
"""

from __future__ import annotations

__all__ = ["Joining", "settings", "train"]

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console

from rss_rl.api.interruption import Interruption
from rss_rl.api.progress import make_progress
from rss_rl.api.run import Run
from rss_rl.api.terminal import SafeConsole, printable, say
from rss_rl.components import EVERYTHING, NOTHING, Trust
from rss_rl.config import (
    RunConfig,
    absolute_paths,
    load_config,
    parse_config,
    setting,
    trust_in_overrides,
    with_overrides,
)
from rss_rl.errors import ConfigError
from rss_rl.mirror.restore import stored_config
from rss_rl.models.build import check_defaults
from rss_rl.ops.native import load_ahead
from rss_rl.packaged import find_config
from rss_rl.results.sentences import kept_warning
from rss_rl.runs.run_directory import CONFIG_FILE, REPORT_FILE, RunDirectory
from rss_rl.storage import open_storage
from rss_rl.training.roles import LocalRoles, Roles
from rss_rl.training.run import RunEvent
from rss_rl.training.run import train as train_events
from rss_rl.training.safe_point import SafePoint
from rss_rl.training.time_budget import TimeBudget, seconds
from rss_rl.training.trainer import Stopped

Config = str | Path | Mapping[str, Any] | RunConfig
"""A YAML file, the name of a shipped configuration, a tree, a configuration, or a run."""
Overrides = Sequence[str] | Mapping[str, Any]
"""`["learner.policy.l2=1e-4"]` or `{"learner.policy.l2": 1e-4}`."""


@dataclass(frozen=True)
class Joining:
    """How a Ray cluster is joined or started, if the configuration uses Ray.

    address    host:port of a head, or None: RAY_ADDRESS, or a new cluster on this machine
    insecure   also use a cluster that checks no token
    dashboard  for a cluster started here
    """

    address: str | None = None
    insecure: bool = False
    dashboard: bool = False

    def options(self) -> str:
        """The command-line options that were given, such as `--address, --insecure`."""
        given = {
            "--address": self.address is not None,
            "--insecure": self.insecure,
            "--dashboard": self.dashboard,
        }
        return ", ".join(option for option, here in given.items() if here)


_HERE = Joining()


def train(
    config: Config,
    overrides: Overrides = (),
    *,
    out: str | Path | None = None,
    callbacks: Sequence[Callable[[RunEvent], None]] = (),
    resume: bool = False,
    overwrite: bool = False,
    storage: str | None = None,
    take_over: bool = False,
    time: str | float | None = None,
    joining: Joining = _HERE,
    trust_plugins: bool = False,
    console: Console | None = None,
) -> Run:
    """Train a classifier and its selection policy to the end, showing progress.

    Ctrl-C (or SIGTERM) stops after the current update with a checkpoint; the returned run is then
    not `finished`, and `run.resume()` continues it.

    Args:
        config: a YAML file, a name that `rss-rl config list` shows, a tree of settings, a
            `RunConfig`; or, with `resume`, the directory of a run.
        overrides: settings that differ, as `key=value` strings or a mapping of dotted keys.
        out: directory of the run; default `runs/CONFIG-seedSEED`.
        callbacks: called with each typed event (`rss_rl.training.run.RunEvent`).
        resume: from the last checkpoint, if there is one; a finished run is returned as it
            is. overwrite: replace an existing run.
        storage: directory or URI to copy the run to at each checkpoint; with `resume`, an empty
            `out` is restored from there. take_over: write there even if another process seems to.
        time: seconds, or "90s", "5m", "2h", that the phases share in proportion to their steps;
            each ends, scored and saved, when its part is over.
        joining: how a Ray cluster is joined, if the configuration uses one.
        trust_plugins: import components that a run's own files name as package.module:OBJECT.
        console: for progress; default: standard output.

    Raises:
        RssError: any expected failure.
    """
    check_defaults()
    _check_options(resume, overwrite, storage, take_over)
    trusted = EVERYTHING if trust_plugins else NOTHING
    plan = _plan(config, settings(overrides), out, storage if resume else None, resume, trusted)
    _check_lasting(plan.path, storage)
    named = Trust.of(plan.config.model_dump(mode="json"))
    shown = console or SafeConsole(highlight=False)
    # With a storage, a finished run is opened again: its last upload may have failed.
    if resume and storage is None and _is_finished(plan):
        shown.print("The run is finished; its report:")
        return Run(plan.path, trust_plugins=named)
    say(shown, f"Run: {plan.path}")
    point = SafePoint()
    with (
        make_progress(shown) as progress,
        Interruption(progress.stopping, _abort_update(plan, point)) as interruption,
        _roles(plan.config, joining, shown) as roles,
        torch.inference_mode(False),
        torch.enable_grad(),
    ):
        stopped = None
        for event in train_events(
            plan.config,
            plan.path,
            roles=roles,
            resume=resume,
            overwrite=overwrite,
            stop=interruption.asked,
            storage=storage,
            take_over=take_over,
            budget=None if time is None else TimeBudget(plan.config.phases, seconds(time)),
            point=point,
        ):
            progress.show(event)
            for callback in callbacks:
                callback(event)
            stopped = event if isinstance(event, Stopped) else None
    run = Run(plan.path, trust_plugins=named)
    if stopped is not None:
        run.stopped_by = interruption.signal
        _say_stopped(shown, plan.path, stopped, storage)
    elif run.finished and (warning := kept_warning(run.report, plan.config.reward.target_share)):
        say(shown, f"Warning: {warning}", "yellow")
    return run


def _abort_update(plan: _Plan, point: SafePoint) -> Callable[[], bool] | None:
    """How to abort an update that takes too long; None if learners are other processes.

    Those finish their update and are then stopped.
    """
    if plan.config.learner.actors:
        return None

    def leave() -> bool:
        try:
            if not point.leave():
                return False
            message = "Stopped within an update, which is lost; those before it are saved."
        except Exception as error:  # the process must end in any case
            message = f"Stopped within an update, and nothing more could be saved: {error}"
        resume = f"  rss-rl train --resume {plan.path}"
        os.write(2, f"{printable(message)} Resume it with:\n{printable(resume)}\n".encode())
        return True

    return leave


def settings(overrides: Overrides) -> list[str]:
    """Overrides as `key=value` strings."""
    if isinstance(overrides, Mapping):
        return [setting(key, value) for key, value in overrides.items()]
    return list(overrides)


def _check_options(resume: bool, overwrite: bool, storage: str | None, take_over: bool) -> None:
    """Refuse options that contradict each other or would do nothing.

    Raises:
        ConfigError: naming them.
    """
    if resume and overwrite:
        raise ConfigError("--resume continues a run, --overwrite replaces it: give one of them")
    if take_over and storage is None:
        raise ConfigError(
            "--take-over is about the writer of a --storage, and none is given",
            remedy="Give --storage URI too; a run directory is free when its process has ended",
        )


def _check_lasting(path: Path, storage: str | None) -> None:
    """Refuse, in a cluster job, a run directory that is deleted with the job.

    Raises:
        ConfigError: naming the directory.
    """
    from rss_rl.cluster import inside_job

    if inside_job() and storage is None and not path.is_absolute():
        raise ConfigError(
            "a cluster job's working directory is deleted when the job ends",
            where=str(path),
            remedy="Give --storage URI, or an absolute --run-dir on a disk that outlives the job",
        )


class _Plan(NamedTuple):
    """What is trained, and where."""

    config: RunConfig
    path: Path


def _plan(
    start: Config,
    overrides: list[str],
    out: str | Path | None,
    storage: str | None,
    resume: bool,
    trusted: Trust,
) -> _Plan:
    run_dir = None if out is None else Path(out)
    if isinstance(start, Mapping | RunConfig):
        tree = start.model_dump(mode="json") if isinstance(start, RunConfig) else start
        changed = with_overrides(tree, overrides)
        config, name = parse_config(changed, where="configuration", trust=EVERYTHING), "run"
        return _absolute(config, name, run_dir)
    if os.path.isfile(Path(start) / CONFIG_FILE):
        return _plan_of_run(Path(start), overrides, run_dir, resume, trusted)
    try:
        file = find_config(start)
    except ConfigError:
        found = None if storage is None else stored_config(open_storage(storage))
        if found is None or overrides or run_dir:
            raise
        # A run that this machine does not have yet.
        stored = parse_config(found, where=f"{storage}/{CONFIG_FILE}", trust=trusted)
        return _Plan(stored, Path(start))
    config = load_config(file, overrides, trusted | _trust_in(file))
    name = Path(start).with_suffix("").as_posix().removeprefix("configs/").replace("/", "-")
    return _absolute(config, file.stem if Path(start).is_file() else name, run_dir)


def _absolute(config: RunConfig, name: str, run_dir: Path | None) -> _Plan:
    return _Plan(absolute_paths(config), run_dir or Path("runs") / f"{name}-seed{config.seed}")


def _trust_in(file: Path) -> Trust:
    """Trust a configuration named by the user, but not one found in a run, an export or a job's
    files, which may be anybody's."""
    from rss_rl.cluster import inside_job

    found = any((file.parent / name).is_file() for name in (CONFIG_FILE, "export.json"))
    return NOTHING if found or inside_job() else EVERYTHING


def _plan_of_run(
    run: Path, overrides: list[str], run_dir: Path | None, resume: bool, trusted: Trust
) -> _Plan:
    if not resume:
        raise ConfigError(
            "is a run, not a configuration",
            where=str(run),
            remedy=f"Resume it: rss-rl train --resume {run}, or repeat it: "
            f"rss-rl train {run / 'config.yaml'} --run-dir DIR",
        )
    directory = RunDirectory.open(run)
    trusted = trusted | trust_in_overrides(overrides)  # a plug-in of the run, named by the user
    config = directory.parsed_config(trusted)
    changed = with_overrides(directory.config, overrides)
    again = parse_config(changed, where=str(run / CONFIG_FILE), trust=trusted)
    if again != config or run_dir:
        raise ConfigError(
            "a run is resumed with its own settings and without --run-dir",
            where=str(run),
            remedy=f"For other settings begin another run: rss-rl train {run / 'config.yaml'} "
            "KEY=VALUE --run-dir DIR",
        )
    return _Plan(config, run)


def _is_finished(plan: _Plan) -> bool:
    """Whether the run has nothing left to do."""
    if not (plan.path / REPORT_FILE).is_file():
        return False
    named = Trust.of(plan.config.model_dump(mode="json"))
    return RunDirectory.open(plan.path).parsed_config(named) == plan.config


@contextmanager
def _roles(config: RunConfig, joining: Joining, out: Console) -> Iterator[Roles]:
    """Samplers and learners of the run; a cluster started for it ends with it."""
    if config.sampler.backend == "local":
        if given := joining.options():
            note = f"{given}: no effect with sampler.backend=local, which uses no cluster"
            say(out, note)
        yield LocalRoles()
        return
    from rss_rl.cluster.connection import connected
    from rss_rl.cluster.roles import RayRoles

    samplers = config.sampler.actors * config.sampler.threads
    learners = config.learner.actors * config.learner.threads
    if config.model.attention != "eager":
        load_ahead()  # compile kernels while Ray starts
    with connected(
        partial(say, out),
        joining.address,
        cores=samplers + learners,
        dashboard=joining.dashboard,
        insecure=joining.insecure,
    ) as cluster:
        say(out, _thread_note(config, cluster.how == "started"))
        yield RayRoles()


def _thread_note(config: RunConfig, one_machine: bool) -> str:
    """A note on the number of threads; more threads than cores slow down every step."""
    learner, sampler = config.learner, config.sampler
    learners = max(1, learner.actors)
    wanted = learners * learner.threads + sampler.actors * sampler.threads
    cores = os.cpu_count() or 1
    note = (
        f"Threads: {learners} x {learner.threads} learning, {sampler.actors} x {sampler.threads}"
        f" sampling; this machine has {cores} cores"
    )
    # Without a policy lag, learners and samplers take turns.
    if one_machine and wanted > cores and sampler.max_policy_lag != 0:
        note += ". More threads than cores: fewer sampler.actors would be faster"
    return note


def _say_stopped(out: Console, path: Path, stopped: Stopped, storage: str | None) -> None:
    out.print(
        f"Stopped after update {stopped.update}; everything up to there is saved. Resume it with:"
    )
    kept = "" if storage is None else f" --storage {storage}"
    say(out, f"  rss-rl train --resume {path}{kept}")

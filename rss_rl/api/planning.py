"""What a training needs before it begins: its configuration and place, and who works for it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from rss_rl.api.options import Config
from rss_rl.api.terminal import say, shell
from rss_rl.components import EVERYTHING, NOTHING, Trust
from rss_rl.config import (
    RunConfig,
    absolute_paths,
    load_config,
    parse_config,
    trust_in_overrides,
    with_overrides,
)
from rss_rl.errors import ConfigError, DataError
from rss_rl.mirror.restore import stored_config
from rss_rl.packaged import find_config
from rss_rl.reading.trained_runs import untrusted_data
from rss_rl.runs.run_directory import CONFIG_FILE, REPORT_FILE, RunDirectory
from rss_rl.storage import is_uri, open_storage
from rss_rl.training.attempts import LocalRoles, Roles
from rss_rl.training.trainer import Stopped


class Plan(NamedTuple):
    """What is trained, and where."""

    config: RunConfig
    path: Path

    @property
    def trust(self) -> Trust:
        """In what the configuration names, which the user chose."""
        return Trust.of(self.config.model_dump(mode="json"))


def check_lasting(path: Path, storage: str | None) -> None:
    """Refuse, in a cluster job, a run directory that is deleted with the job.

    Raises:
        ConfigError: naming the directory.
    """
    from rss_rl.cluster import inside_job

    if inside_job() and storage is None and not path.is_absolute():
        raise ConfigError(
            "a cluster job's working directory is deleted when the job ends",
            where=str(path),
            remedy="Give --storage URI, or an absolute --out on a disk that outlives the job",
        )


def plan_training(
    start: Config | RunConfig,
    overrides: list[str],
    out: str | Path | None,
    storage: str | None,
    resume: bool,
    trusted: Trust,
) -> Plan:
    """What `train` was asked for.

    Args:
        storage: of a run that this machine may not have yet. trusted: code that a run may import.

    Raises:
        RssError: no such configuration or run, or settings that cannot be.
    """
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
        settled = None if storage is None else stored_config(open_storage(storage))
        if settled is None or overrides or run_dir:
            raise
        # A run that this machine does not have yet.
        stored = parse_config(settled, where=f"{storage}/{CONFIG_FILE}", trust=trusted)
        if is_uri(stored.data) and not trusted.admits(stored.data):
            raise untrusted_data(stored.data, "Trust it with --trust-plugins") from None
        return Plan(stored, Path(start))
    config = load_config(file, overrides, trusted | trust_in(file))
    _check_demo(file.stem, config.data)
    name = Path(start).with_suffix("").as_posix().removeprefix("configs/").replace("/", "-")
    return _absolute(config, file.stem if Path(start).is_file() else name, run_dir)


def _check_demo(name: str, data: str) -> None:
    """Name the command that prepares the demo's data, if these are missing.

    Raises:
        DataError: they are.
    """
    command = {"demo": "rss-rl demo", "demo_real": "rss-rl demo --real"}.get(name)
    if command is not None and not is_uri(data) and not Path(data).is_dir():
        folder = f"runs/{name.replace('_', '-')}-data"
        raise DataError(
            "the data of the demo are not prepared",
            where=data,
            remedy=f"Run `{command}` first, and give data={folder}",
        )


def _absolute(config: RunConfig, name: str, run_dir: Path | None) -> Plan:
    return Plan(absolute_paths(config), run_dir or Path("runs") / f"{name}-seed{config.seed}")


def trust_in(file: Path) -> Trust:
    """Trust a configuration named by the user, but not one found in a run, an export or a job's
    files, which may be anybody's."""
    from rss_rl.cluster import inside_job

    stranger = any((file.parent / name).is_file() for name in (CONFIG_FILE, "export.json"))
    return NOTHING if stranger or inside_job() else EVERYTHING


def _plan_of_run(
    run: Path, overrides: list[str], run_dir: Path | None, resume: bool, trusted: Trust
) -> Plan:
    if not resume:
        raise ConfigError(
            "is a run, not a configuration",
            where=str(run),
            remedy=f"Resume it: {shell('rss-rl', 'train', '--resume', run)}, or repeat it: "
            f"{shell('rss-rl', 'train', run / 'config.yaml')} --out DIR",
        )
    directory = RunDirectory.open(run)
    trusted = trusted | trust_in_overrides(overrides)  # a plug-in of the run, named by the user
    config = directory.parsed_config(trusted)
    if is_uri(config.data) and not trusted.admits(config.data):
        command = shell("rss-rl", "train", "--resume", run, f"data={config.data}")
        raise untrusted_data(config.data, f"Name it again: {command}")
    changed = with_overrides(directory.config, overrides)
    again = parse_config(changed, where=str(run / CONFIG_FILE), trust=trusted)
    if again != config or run_dir:
        raise ConfigError(
            "a run is resumed with its own settings and without --out",
            where=str(run),
            remedy="For other settings begin another run: "
            f"{shell('rss-rl', 'train', run / 'config.yaml')} KEY=VALUE --out DIR",
        )
    return Plan(config, run)


def is_finished(plan: Plan) -> bool:
    """Whether the run has nothing left to do."""
    if not (plan.path / REPORT_FILE).is_file():
        return False
    return RunDirectory.open(plan.path).parsed_config(plan.trust) == plan.config


@contextmanager
def workers(config: RunConfig, address: str | None, out: Console) -> Iterator[Roles]:
    """Samplers and learners of the run; a cluster started for it ends with it."""
    if config.sampler.backend == "local":
        if address:
            say(out, "--address: no effect with sampler.backend=local, which uses no cluster")
        yield LocalRoles()
        return
    from rss_rl.cluster.connection import connected
    from rss_rl.cluster.roles import RayRoles

    samplers = config.sampler.actors * config.sampler.threads
    learners = config.learner.actors * config.learner.threads
    tell, cores = partial(say, out), samplers + learners
    with connected(tell, address, cores=cores):
        yield RayRoles()


def say_stopped(out: Console, path: Path, stopped: Stopped, storage: str | None) -> None:
    """Say how a stopped run is resumed."""
    kept = ["--storage", storage] if storage else []
    saved = f"Stopped after update {stopped.update}; everything up to there is saved."
    say(out, f"{saved} Resume it with:\n  {shell('rss-rl', 'train', '--resume', path, *kept)}")

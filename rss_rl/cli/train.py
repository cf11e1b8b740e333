"""`rss-rl train`: begin a run, or go on with one."""

from __future__ import annotations

__all__ = ["EPILOG", "train"]

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from rss_rl.cli.options import Json, Overrides, TrustPlugins, console, trust
from rss_rl.cli.tables import show_report
from rss_rl.errors import ConfigError

if TYPE_CHECKING:
    from rss_rl.components import Trust
    from rss_rl.config import RunConfig

EPILOG = """
Examples:

`rss-rl train sick data=data/sick` trains in `runs/sick-seed0`.

`rss-rl train sick seed=3 sampler.backend=ray sampler.actors=4 --run-dir runs/third`

`rss-rl train --resume runs/third` goes on where a run was stopped or killed.

`rss-rl train sick --run-dir runs/a --storage s3://bucket/a --resume` copies the run to the storage
as it goes, and on a new machine goes on with what is there.

Press Ctrl-C once to stop after the present update with a checkpoint, twice to quit at once.
`rss-rl config show` documents all settings.
"""

Start = Annotated[
    str,
    typer.Argument(
        metavar="CONFIG|RUN",
        help="A YAML file, a name that `rss-rl config list` shows, or with --resume the directory "
        "of a run.",
    ),
]
RunDir = Annotated[
    Path | None,
    typer.Option(
        "--run-dir", metavar="DIR", help="Directory of the run. Default: runs/CONFIG-seedSEED."
    ),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on from the last checkpoint, where there is one.")
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace a run that is in the directory already.")
]
Storage = Annotated[
    str | None,
    typer.Option(
        "--storage",
        metavar="URI",
        help="Directory or URI (s3://, gs://, ...) that gets a copy of the run at each checkpoint; "
        "with --resume a machine without the run gets it from there.",
    ),
]
TakeOver = Annotated[
    bool,
    typer.Option(
        "--take-over", help="Write to --storage though another process seems to; it has stopped."
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="Ray cluster to work on, or 'auto' for the one that runs on this machine. Default: "
        "RAY_ADDRESS, or a cluster that is started here and ends with the run.",
    ),
]
Insecure = Annotated[
    bool,
    typer.Option("--insecure", help="Work even on a cluster that lets in anybody without a token."),
]
Dashboard = Annotated[
    bool, typer.Option("--dashboard", help="Start Ray's dashboard too, on 127.0.0.1:8265.")
]


def train(
    config: Start,
    overrides: Overrides = None,
    run_dir: RunDir = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    storage: Storage = None,
    take_over: TakeOver = False,
    address: Address = None,
    insecure: Insecure = False,
    dashboard: Dashboard = False,
    trust_plugins: TrustPlugins = False,
    json_: Json = False,
) -> None:
    """Train a classifier and its selection policy; ends in a table of dev and test scores."""
    _check_options(resume, overwrite, storage, take_over)
    trusted = trust(trust_plugins)
    plan = _plan(config, overrides or [], run_dir, storage if resume else None, resume, trusted)
    _check_lasting(plan.path, storage)
    out = console(stderr=json_)
    # With a storage a finished run is gone through once more: its last upload may have failed.
    report = _finished(plan) if resume and storage is None else None
    if report is None:
        out.print(f"Run: {plan.path}", soft_wrap=True, markup=False)
        from rss_rl.cli.training import Joining, run_training

        report = run_training(
            plan.config,
            plan.path,
            out,
            joining=Joining(address, insecure, dashboard),
            resume=resume,
            overwrite=overwrite,
            storage=storage,
            take_over=take_over,
        )
    else:
        out.print("The run is finished; its report:")
    show_report(out, plan.path, report, as_json=json_)


def _check_options(resume: bool, overwrite: bool, storage: str | None, take_over: bool) -> None:
    """Refuse options that contradict each other or would do nothing.

    Raises:
        ConfigError: naming them.
    """
    if resume and overwrite:
        raise ConfigError("--resume goes on with a run, --overwrite replaces it: give one of them")
    if take_over and storage is None:
        raise ConfigError(
            "--take-over is about the writer of a --storage, and none is given",
            remedy="Give --storage URI too; a run directory is free when its process has ended",
        )


def _check_lasting(path: Path, storage: str | None) -> None:
    """Refuse a run directory that vanishes with the job whose process this is.

    Raises:
        ConfigError: naming the directory.
    """
    from rss_rl.cluster.processes import inside_job

    if inside_job() and storage is None and not path.is_absolute():
        raise ConfigError(
            "a job of a cluster works in a directory that vanishes with it",
            where=str(path),
            remedy="Give --storage URI, or an absolute --run-dir on a disk that outlives the job",
        )


class _Plan(NamedTuple):
    """What is trained, and where."""

    config: RunConfig
    path: Path


def _plan(
    start: str,
    overrides: list[str],
    run_dir: Path | None,
    storage: str | None,
    resume: bool,
    trusted: Trust,
) -> _Plan:
    if (Path(start) / "config.json").is_file():
        return _plan_of_run(Path(start), overrides, run_dir, resume, trusted)
    from rss_rl.config import load_config
    from rss_rl.packaged import find_config
    from rss_rl.storage import is_uri

    try:
        file = find_config(start)
    except ConfigError:
        stored = _stored_config(storage, trusted)
        if stored is None or overrides or run_dir:
            raise
        return _Plan(stored, Path(start))  # a run that this machine does not have yet
    config = load_config(file, overrides, trusted | _trust_in(file))
    # Absolute, so that a run can be resumed and evaluated from any directory.
    if not is_uri(config.data):
        config = config.model_copy(update={"data": str(Path(config.data).resolve())})
    name = Path(start).with_suffix("").as_posix().removeprefix("configs/").replace("/", "-")
    name = file.stem if Path(start).is_file() else name
    return _Plan(config, run_dir or Path("runs") / f"{name}-seed{config.seed}")


def _stored_config(storage: str | None, trusted: Trust) -> RunConfig | None:
    """Of the run that a storage holds, if any."""
    from rss_rl.config import parse_config
    from rss_rl.runtime.restore import stored_config
    from rss_rl.storage import open_storage

    tree = None if storage is None else stored_config(open_storage(storage))
    where = f"{storage}/config.json"
    return None if tree is None else parse_config(tree, where=where, trust=trusted)


def _trust_in(file: Path) -> Trust:
    """A configuration that the user names is the user's word; one found in a run, an export or a
    job's files may be anybody's."""
    from rss_rl.cluster.processes import inside_job
    from rss_rl.components import EVERYTHING, NOTHING

    found = any((file.parent / name).is_file() for name in ("config.json", "export.json"))
    return NOTHING if found or inside_job() else EVERYTHING


def _plan_of_run(
    run: Path, overrides: list[str], run_dir: Path | None, resume: bool, trusted: Trust
) -> _Plan:
    from rss_rl.config import parse_config, trust_in_overrides, with_overrides
    from rss_rl.runtime.run_directory import RunDirectory

    if not resume:
        raise ConfigError(
            "that is a run, not a configuration",
            where=str(run),
            remedy=f"Go on with it: rss-rl train --resume {run}, or repeat it: "
            f"rss-rl train {run / 'config.yaml'} --run-dir DIR",
        )
    tree, where = RunDirectory.open(run).config, str(run / "config.json")
    trusted = trusted | trust_in_overrides(overrides)  # the same plug-in, named again
    config = parse_config(tree, where=where, trust=trusted)
    again = parse_config(with_overrides(tree, overrides), where=where, trust=trusted)
    if again != config or run_dir:
        raise ConfigError(
            "a run is gone on with as it was begun: no other settings and no --run-dir",
            where=str(run),
            remedy=f"For other settings begin another run: rss-rl train {run / 'config.yaml'} "
            "KEY=VALUE --run-dir DIR",
        )
    return _Plan(config, run)


def _finished(plan: _Plan) -> dict[str, object] | None:
    """The report of a run that has nothing left to do."""
    from rss_rl.components import Trust
    from rss_rl.config import parse_config
    from rss_rl.runtime.run_directory import RunDirectory

    if not (plan.path / "report.json").is_file():
        return None
    run = RunDirectory.open(plan.path)
    named = Trust.of(plan.config.model_dump(mode="json"))
    where = str(plan.path / "config.json")
    same = parse_config(run.config, where=where, trust=named) == plan.config
    return run.read_report() if same else None

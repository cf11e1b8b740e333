"""`rss-rl table`: a table of the papers, from data to picture."""

from __future__ import annotations

__all__ = ["EPILOG", "table"]

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table as Shown

from rss_rl.cli.making import run_workers
from rss_rl.cli.options import Again, DryRun, OnlyRead, console
from rss_rl.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rss_rl.cli.making import MakeWorkers
    from rss_rl.results.tables.plan import Plan, State
    from rss_rl.results.tables.provide import Provider
    from rss_rl.results.tables.work import Ended

EPILOG = """
Examples:

`rss-rl table sick --data-root DATA --jobs 2` prepares the data, makes every missing run two at a
time, and prints the table, which also lies in `runs/tables/sick` with a CSV file and a picture.

`rss-rl table sick --dry-run` shows what would be done.

`rss-rl table sick --rows resan,mean --seeds 0` makes a part of it.

`rss-rl table sick --only-read` prints the table of the runs that are finished.

`rss-rl table my.yaml` makes a table of your own; the shipped ones are examples of the form.

Press Ctrl-C once to stop with a checkpoint of each run; the same command goes on from there.
"""

Name = Annotated[
    str, typer.Argument(metavar="NAME|FILE", help="A shipped table, or a YAML file of your own.")
]
DataRoot = Annotated[
    Path | None,
    typer.Option(
        "--data-root",
        metavar="DIR",
        help="Holds a folder for each dataset, and the files of word vectors.",
    ),
]
Vectors = Annotated[
    list[Path] | None,
    typer.Option(
        "--vectors", metavar="FILE", help="Word vectors in place of the table's; repeatable."
    ),
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Holds data, runs and tables.")]
Seeds = Annotated[
    str | None,
    typer.Option("--seeds", metavar="0,1,...", help="In place of each row's own number."),
]
Rows = Annotated[str | None, typer.Option("--rows", metavar="A,B", help="Rows; default all.")]
Datasets = Annotated[
    str | None, typer.Option("--datasets", metavar="A,B", help="Datasets; default all.")
]
Jobs = Annotated[
    int,
    typer.Option(
        "--jobs", min=1, help="Runs at a time, as Ray tasks of one CPU; 1: here, without Ray."
    ),
]
Timing = Annotated[
    bool | None,
    typer.Option(
        "--timing/--no-timing",
        help="Measure training and inference after the runs, again or not at all. Default: where "
        "it is missing.",
    ),
]


def table(
    name: Name,
    data_root: DataRoot = None,
    vectors: Vectors = None,
    out: Out = Path("runs/tables"),
    seeds: Seeds = None,
    rows: Rows = None,
    datasets: Datasets = None,
    jobs: Jobs = 1,
    only_read: OnlyRead = False,
    dry_run: DryRun = False,
    again: Again = False,
    timing: Timing = None,
) -> None:
    """Make a table of results: prepare data, train what is missing, measure, compare."""
    from rss_rl.packaged import find_table
    from rss_rl.results.tables.plan import plan_runs
    from rss_rl.results.tables.provide import Provider
    from rss_rl.results.tables.spec import load_table

    file, shown = find_table(name), console()
    spec = load_table(file)
    parts = {"rows": _names("--rows", rows), "datasets": _names("--datasets", datasets)}
    plan = plan_runs(file.stem, spec, out, **parts, seeds=_numbers(seeds))
    states = _states(plan)
    if dry_run:
        provider = Provider(spec, data_root, vectors)
        shown.print(_overview(plan, states, provider), soft_wrap=True)
        return
    _refuse_changed(plan, states, again)
    if only_read and timing:
        raise ConfigError("--only-read measures nothing: leave --timing away")
    making = _Making(data_root, vectors, jobs, again, timing)
    failed = [] if only_read else _make(plan, states, making, shown)
    _write(plan, shown)
    _say_failed(failed, shown)


def _say_failed(failed: list[Ended], shown: Console) -> None:
    if failed:
        shown.print(f"\nFailed runs: {len(failed)}")
        same: dict[str, list[str]] = {}
        for ended in failed:
            same.setdefault(ended.reason, []).append(ended.run.label)
        for reason, (first, *others) in same.items():
            more = f" and {len(others)} more" if others else ""
            shown.print(f"  {first}{more}: {reason}", soft_wrap=True, markup=False)
        raise typer.Exit(1)


def _names(option: str, given: str | None) -> list[str] | None:
    if given is None:
        return None
    names = [item.strip() for item in given.split(",") if item.strip()]
    if not names:
        raise ConfigError(f"{option} names nothing", remedy="Write it as A,B, or leave it away")
    return names


def _numbers(given: str | None) -> list[int] | None:
    if given is None:
        return None
    names = [item.strip() for item in given.split(",")]
    if not all(item.isdecimal() for item in names):
        raise ConfigError(f"--seeds {given} is no list of seeds", remedy="Write it as 0,1,2")
    return sorted({int(item) for item in names})


def _states(plan: Plan) -> dict[str, State]:
    from rss_rl.results.tables.plan import state_of

    return {run.label: state_of(run) for run in plan.runs}


def _overview(plan: Plan, states: dict[str, State], provider: Provider) -> Shown:
    """What there is and what would be done."""
    shown = Shown("run", "state", "data", box=None, pad_edge=False)
    for run in plan.runs:
        data = "prepared" if provider.is_there(run.place) else "to be prepared"
        shown.add_row(run.label, states[run.label], data)
    counts = [list(states.values()).count(state) for state in ("finished", "interrupted")]
    shown.caption = f"{len(plan.runs)} runs: {counts[0]} finished, {counts[1]} interrupted"
    shown.caption_justify = "left"
    return shown


def _refuse_changed(plan: Plan, states: dict[str, State], again: bool) -> None:
    changed = [run for run in plan.runs if states[run.label] == "changed"]
    if changed and not again:
        more = "" if len(changed) == 1 else f" and {len(changed) - 1} more"
        raise CheckpointError(
            f"{changed[0].label}{more}: made with other settings or data than the table has now",
            where=str(changed[0].path),
            remedy="Replace such runs with --again, or give another --out",
        )


class _Making:
    """What the options say about making runs."""

    def __init__(
        self,
        root: Path | None,
        vectors: Sequence[Path] | None,
        jobs: int,
        again: bool,
        timing: bool | None,
    ) -> None:
        self.root, self.vectors, self.jobs = root, vectors, jobs
        self.again, self.timing = again, timing


def _make(plan: Plan, states: dict[str, State], making: _Making, out: Console) -> list[Ended]:
    """Make the runs that are missing and measure; the runs that failed.

    Raises:
        typer.Exit: stopped by Ctrl-C or SIGTERM.
    """
    from rss_rl.api.interruption import Interruption
    from rss_rl.cli.table_progress import TableProgress
    from rss_rl.results.tables.output import check_folder, time_rows
    from rss_rl.results.tables.provide import Provider
    from rss_rl.results.tables.work import work_through

    missing = [run for run in plan.runs if states[run.label] != "finished"]
    places = list({run.place.name: run.place for run in missing}.values())
    Provider(plan.table, making.root, making.vectors).check_root(places)
    check_folder(plan)
    progress = TableProgress(out, len(missing), making.jobs)
    provider = Provider(plan.table, making.root, making.vectors, progress.tell)
    ended: list[Ended] = []
    try:
        with Interruption(progress.stopping) as interruption:
            if missing:
                with run_workers(
                    plan, making.jobs, interruption.asked, progress, _ray_workers
                ) as workers:
                    ended = work_through(
                        missing,
                        workers,
                        provider.provide,
                        progress,
                        stop=interruption.asked,
                        again=making.again,
                    )
            if making.timing is not False:
                anew = making.timing is True
                time_rows(plan, anew=anew, stop=interruption.asked, tell=progress.tell)
    finally:
        progress.close()
    if interruption.asked():
        out.print("Stopped; the same command goes on from here.")
        raise typer.Exit(interruption.exit_code)
    return [item for item in ended if item.outcome == "failed"]


def _ray_workers() -> MakeWorkers:
    from rss_rl.cluster.table_workers import RayWorkers

    return RayWorkers


def _write(plan: Plan, out: Console) -> None:
    from rss_rl.results.tables.output import write_table

    written = write_table(plan, show=typer.echo)
    for file in written.files:
        out.print(str(file), soft_wrap=True, markup=False)

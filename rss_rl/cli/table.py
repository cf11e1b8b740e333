"""`rss-rl table` and `rss-rl frontier`: train a grid of runs and show their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from rss_rl.api.terminal import say
from rss_rl.cli import options
from rss_rl.cli.options import argument, console, option, split_list
from rss_rl.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from rss_rl.cli.table_progress import TableProgress
    from rss_rl.results.tables.data import TableData
    from rss_rl.results.tables.execute import RunResult, Workers
    from rss_rl.results.tables.plan import Plan, PlannedRun

TABLE_EPILOG = """
Examples:

`rss-rl table sick --data-root DATA --jobs 2` prepares the data, trains the missing runs, two at a
time, and prints the table. It also writes it to `runs/tables/sick`, with a CSV file and a plot.

`rss-rl table sick --dry-run` shows what would be done.

`rss-rl table sick --rows resan,mean --seeds 0` makes part of it.

`rss-rl table sick --only-read` prints the table of the runs that are finished.

`rss-rl table my.yaml` makes a table of your own; use the shipped ones as examples.

Press Ctrl-C once to stop with a checkpoint of each run; the same command resumes them.
"""
FRONTIER_EPILOG = """
Examples:

`rss-rl frontier sick --shares .1,.2,.3,.5 --jobs 2` trains the configuration's policy at every
target share with three seeds, two runs at a time, and writes `frontier.md`, `.csv` and `.png` into
`runs/frontier/sick`. `--policies` takes several; `rss-rl components policies` lists them.

`rss-rl frontier movies --shares .1,.3 --costs .3,1 --policies A,B` trains a policy that learns from
rewards at each share, and one that learns through gates at each cost, and plots both.

`rss-rl frontier demo data=data/reviews --costs 0.01,0.1,1 --seeds 1` trains at each value of
lambda.

`rss-rl frontier sick --shares .1,.3 --only-read` shows what is finished.

Press Ctrl-C once to stop with a checkpoint of each run; the same command resumes them.
"""

Jobs = Annotated[
    int, option("--jobs", "Runs at a time; with 1 they run in this process, without Ray.", min=1)
]
Again = Annotated[
    bool, option("--again", "Replace runs that were made with other settings or data.")
]


def table(
    name: Annotated[str, argument("NAME|FILE", "A shipped table, or a YAML file of your own.")],
    data_root: Annotated[
        Path | None,
        option(
            "--data-root DIR",
            "Folder with a subfolder for each dataset, and the files of word vectors.",
        ),
    ] = None,
    vectors: Annotated[
        list[Path] | None,
        option("--vectors FILE", "Word vectors to use instead of the table's; repeatable."),
    ] = None,
    out: Annotated[Path, option("--out DIR", "Folder for data, runs and tables.")] = Path(
        "runs/tables"
    ),
    seeds: Annotated[
        str | None, option("--seeds 0,1,...", "Seeds to use instead of each row's own.")
    ] = None,
    rows: Annotated[str | None, option("--rows A,B", "Rows to make. Default: all.")] = None,
    datasets: Annotated[
        str | None, option("--datasets A,B", "Datasets to use. Default: all.")
    ] = None,
    jobs: Jobs = 1,
    only_read: options.OnlyRead = False,
    dry_run: options.DryRun = False,
    again: Again = False,
    timing: Annotated[
        bool | None,
        option(
            "--timing/--no-timing",
            "Measure training and inference times again, or not at all. Default: measure "
            "missing ones.",
        ),
    ] = None,
) -> None:
    """Make a table of results: prepare data, train what is missing, measure, compare."""
    from rss_rl.packaged import find_table
    from rss_rl.results.tables.data import TableData
    from rss_rl.results.tables.plan import plan_runs
    from rss_rl.results.tables.report import write_table
    from rss_rl.results.tables.spec import load_table
    from rss_rl.results.tables.timing import time_rows

    if only_read and timing:
        raise ConfigError("--only-read measures nothing: leave out --timing")
    file = find_table(name)
    spec = load_table(file)
    parts = {"rows": _names("--rows", rows), "datasets": _names("--datasets", datasets)}
    plan = plan_runs(file.stem, spec, out, **parts, seeds=_seeds(seeds))
    grid = _Grid(plan, TableData(spec, data_root, vectors), jobs, again)
    if timing is not False:
        grid.after = lambda stop, tell: time_rows(plan, anew=timing is True, stop=stop, tell=tell)
    grid.run(write_table, dry_run=dry_run, only_read=only_read)


def frontier(
    config: options.ConfigName,
    overrides: options.Overrides = None,
    shares: Annotated[
        str | None, option("--shares A,B", "Target shares of tokens to keep.")
    ] = None,
    costs: Annotated[
        str | None,
        option(
            "--costs A,B",
            "Sparsity costs, instead of shares or for the policies that learn through gates.",
        ),
    ] = None,
    policies: Annotated[
        str | None, option("--policies A,B", "Policies to train. Default: the configuration's own.")
    ] = None,
    seeds: Annotated[int, option("--seeds", "Runs of each point.", min=1)] = 3,
    jobs: Jobs = 1,
    out: Annotated[Path, option("--out DIR", "Folder for the runs and the files.")] = Path(
        "runs/frontier"
    ),
    only_read: options.OnlyRead = False,
    dry_run: options.DryRun = False,
    again: Again = False,
) -> None:
    """Train policies at several target shares or costs, and plot accuracy against tokens."""
    from rss_rl.config import load_config
    from rss_rl.packaged import find_config
    from rss_rl.results.tables.data import TableData
    from rss_rl.results.tables.frontier import Sweep, frontier_table, write_frontier
    from rss_rl.results.tables.plan import plan_runs

    overrides = overrides or []
    base = load_config(find_config(config), overrides)
    names = tuple(split_list(policies)) or (base.policy.name,)
    sweep = Sweep(names, _numbers("--shares", shares), _numbers("--costs", costs), seeds)
    local = [*overrides, "sampler.backend=local", "learner.actors=0"]
    spec = frontier_table(config, local, base, sweep)
    plan = plan_runs(Path(config).stem, spec, out)
    grid = _Grid(plan, TableData(spec), jobs, again)
    grid.run(write_frontier, dry_run=dry_run, only_read=only_read)


def _names(option: str, given: str | None) -> list[str] | None:
    names = split_list(given)
    if given is not None and not names:
        raise ConfigError(f"{option} names nothing", remedy="Write it as A,B, or leave it out")
    return names or None


def _seeds(given: str | None) -> list[int] | None:
    if given is None:
        return None
    names = [item.strip() for item in given.split(",")]
    if not all(item.isdecimal() for item in names):
        raise ConfigError(f"--seeds {given} is not a list of seeds", remedy="Write it as 0,1,2")
    return sorted({int(item) for item in names})


def _numbers(option: str, given: str | None) -> tuple[float, ...]:
    try:
        return tuple(float(item) for item in split_list(given))
    except ValueError as error:
        raise ConfigError(
            f"{option} {given} is not a list of numbers", remedy="Write it as 0.1,0.3"
        ) from error


class _Grid:
    """A plan of runs, and how they are trained.

    jobs         runs at a time; 1: in this process, without Ray
    again        replace runs that were trained with other settings or data
    after        called after the runs, with functions to poll for a stop and to print a line
    """

    def __init__(self, plan: Plan, data: TableData, jobs: int, again: bool) -> None:
        from rss_rl.results.tables.plan import state_of

        self._plan, self._data, self._jobs, self._again = plan, data, jobs, again
        self._states = {run.label: state_of(run) for run in plan.runs}
        self._out = console()
        self.after: Callable[[Callable[[], bool], Callable[[str], None]], None] | None = None

    def run(
        self,
        write: Callable[[Plan, Callable[[str], None]], list[Path]],
        *,
        dry_run: bool,
        only_read: bool,
    ) -> None:
        """Train the missing runs and write the files.

        Raises:
            typer.Exit: runs failed, or were stopped by Ctrl-C or SIGTERM.
        """
        if dry_run:
            self._out.print(self._overview(), soft_wrap=True)
            return
        self._refuse_changed()
        results = [] if only_read else self._train()
        for file in write(self._plan, typer.echo):
            say(self._out, str(file))
        _report_failed([item for item in results if item.outcome == "failed"], self._out)

    def _overview(self) -> Table:
        """The state of each run and its data."""
        shown = Table("run", "state", "data", box=None, pad_edge=False)
        for run in self._plan.runs:
            data = "prepared" if self._data.is_prepared(run.fold) else "to be prepared"
            shown.add_row(run.label, self._states[run.label], data)
        states = list(self._states.values())
        finished, interrupted = states.count("finished"), states.count("interrupted")
        shown.caption = f"{len(states)} runs: {finished} finished, {interrupted} interrupted"
        shown.caption_justify = "left"
        return shown

    def _refuse_changed(self) -> None:
        changed = [run for run in self._plan.runs if self._states[run.label] == "changed"]
        if changed and not self._again:
            more = "" if len(changed) == 1 else f" and {len(changed) - 1} more"
            raise CheckpointError(
                f"{changed[0].label}{more}: made with other settings or data than now",
                where=str(changed[0].path),
                remedy="Replace such runs with --again, or give another --out",
            )

    def _train(self) -> list[RunResult]:
        from rss_rl.api.interruption import Interruption
        from rss_rl.cli.table_progress import TableProgress, say_stopping
        from rss_rl.results.output import check_folder
        from rss_rl.results.tables.execute import RunResult

        missing = [run for run in self._plan.runs if self._states[run.label] != "finished"]
        self._data.check_root([run.fold for run in missing])
        check_folder(self._plan.folder, "table")
        progress = TableProgress(self._out, len(missing), self._jobs)
        self._data.tell = progress.tell
        results: list[RunResult] = []
        try:
            with Interruption(say_stopping) as interruption:
                stop = interruption.asked
                for event in self._events(missing, stop, progress):
                    progress.show(event)
                    if isinstance(event, RunResult):
                        results.append(event)
                if self.after is not None:
                    self.after(stop, progress.tell)
        finally:
            progress.close()
        if interruption.asked():
            self._out.print("Stopped; the same command resumes the runs.")
            raise typer.Exit(interruption.exit_code)
        return results

    def _events(
        self, missing: list[PlannedRun], stop: Callable[[], bool], progress: TableProgress
    ) -> Iterator[PlannedRun | RunResult]:
        from rss_rl.results.tables.execute import execute

        if missing:
            folder, prepare = self._plan.folder, self._data.prepare
            with run_workers(folder, self._jobs, stop, progress) as workers:
                yield from execute(missing, workers, prepare, stop=stop, again=self._again)


@contextmanager
def run_workers(
    folder: Path, jobs: int, stop: Callable[[], bool], progress: TableProgress
) -> Iterator[Workers]:
    """Workers for the runs under `folder`; a cluster started for them ends with them."""
    from rss_rl.results.tables.execute import LocalWorkers

    if jobs == 1:
        yield LocalWorkers(stop, progress.progress)
        return
    from rss_rl.cluster.connection import connected
    from rss_rl.cluster.run_workers import RayWorkers

    with (
        connected(progress.tell, cores=jobs),
        closing(RayWorkers(jobs, folder, stop, progress.progress)) as workers,
    ):
        yield workers


def _report_failed(failed: Sequence[RunResult], out: Console) -> None:
    if not failed:
        return
    out.print(f"\nFailed runs: {len(failed)}")
    same: dict[str, list[str]] = {}
    for result in failed:
        same.setdefault(result.reason, []).append(result.run.label)
    for reason, (first, *others) in same.items():
        more = f" and {len(others)} more" if others else ""
        say(out, f"  {first}{more}: {reason}")
    raise typer.Exit(1)

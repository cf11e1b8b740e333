"""`rss-rl frontier`: what accuracy costs in tokens, for several policies."""

from __future__ import annotations

__all__ = ["EPILOG", "frontier"]

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from rss_rl.cli.making import run_workers
from rss_rl.cli.options import Again, ConfigName, DryRun, OnlyRead, Overrides, console
from rss_rl.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rss_rl.cli.making import MakeWorkers
    from rss_rl.results.tables.plan import Plan, PlannedRun
    from rss_rl.results.tables.work import Ended

EPILOG = """
Examples:

`rss-rl frontier sick --shares .1,.2,.3,.5 --jobs 2` trains the configuration's policy at every
target share with three seeds, two runs at a time on Ray Tune (`rss-rl[tune]`), and writes
`frontier.md`, `.csv` and `.png` into `runs/frontier/sick`. `--policies` takes several, of those
that `rss-rl components policies` names.

`rss-rl frontier movies --shares .1,.3 --costs .3,1 --policies A,B` takes a policy that learns from
rewards through the shares and one that learns through its gates through the costs: one picture.

`rss-rl frontier demo data=data/reviews --costs 0.01,0.1,1 --seeds 1` goes through values of lambda.

`rss-rl frontier sick --shares .1,.3 --only-read` shows what is finished.

Press Ctrl-C once to stop with a checkpoint of each run; the same command goes on from there.
"""

Shares = Annotated[
    str | None, typer.Option("--shares", metavar="A,B", help="Target shares of tokens to keep.")
]
Costs = Annotated[
    str | None,
    typer.Option(
        "--costs",
        metavar="A,B",
        help="Sparsity costs, in place of shares or for the policies that learn through gates.",
    ),
]
Policies = Annotated[
    str | None,
    typer.Option("--policies", metavar="A,B", help="Default: the configuration's own."),
]
Seeds = Annotated[int, typer.Option("--seeds", min=1, help="Runs of each point.")]
Jobs = Annotated[
    int,
    typer.Option("--jobs", min=1, help="Runs at a time, on Ray Tune; 1: here, without Ray."),
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Holds the runs and the files.")]


def frontier(
    config: ConfigName,
    overrides: Overrides = None,
    shares: Shares = None,
    costs: Costs = None,
    policies: Policies = None,
    seeds: Seeds = 3,
    jobs: Jobs = 1,
    out: Out = Path("runs/frontier"),
    only_read: OnlyRead = False,
    dry_run: DryRun = False,
    again: Again = False,
) -> None:
    """Train policies at several target shares or costs, and plot accuracy against tokens."""
    from rss_rl.results.tables.frontier_output import write_frontier
    from rss_rl.results.tables.plan import state_of

    plan = _plan(config, overrides or [], (shares, costs, policies), seeds, out)
    states = {run.label: state_of(run) for run in plan.runs}
    shown = console()
    if dry_run:
        for label, state in states.items():
            shown.print(f"{label}: {state}", soft_wrap=True, markup=False)
        return
    if not again:
        _refuse_changed(plan, states)
    missing = [run for run in plan.runs if states[run.label] != "finished"]
    ended = _make(plan, missing, jobs, again, shown) if missing and not only_read else []
    for file in write_frontier(plan, show=typer.echo).files:
        shown.print(str(file), soft_wrap=True, markup=False)
    failed = [item for item in ended if item.outcome == "failed"]
    for item in failed:
        shown.print(f"failed: {item.run.label}: {item.reason}", soft_wrap=True, markup=False)
    if failed:
        raise typer.Exit(1)


def _refuse_changed(plan: Plan, states: Mapping[str, str]) -> None:
    changed = [run for run in plan.runs if states[run.label] == "changed"]
    if changed:
        raise CheckpointError(
            f"{changed[0].label}: made with other settings or data",
            where=str(changed[0].path),
            remedy="Replace such runs with --again, or give another --out",
        )


def _plan(
    config: str,
    overrides: Sequence[str],
    swept: tuple[str | None, str | None, str | None],
    seeds: int,
    out: Path,
) -> Plan:
    from rss_rl.config import load_config
    from rss_rl.packaged import find_config
    from rss_rl.results.tables.frontier import Sweep, frontier_table
    from rss_rl.results.tables.plan import plan_runs

    shares, costs, policies = swept
    base = load_config(find_config(config), overrides)
    names = [name.strip() for name in (policies or base.policy.name).split(",") if name.strip()]
    sweep = Sweep(tuple(names), _numbers("--shares", shares), _numbers("--costs", costs), seeds)
    overrides = [*overrides, "sampler.backend=local", "learner.actors=0"]
    table = frontier_table(config, overrides, base, sweep)
    return plan_runs(Path(config).stem, table, out)


def _numbers(option: str, given: str | None) -> tuple[float, ...]:
    try:
        return tuple(float(item) for item in (given or "").split(",") if item.strip())
    except ValueError as error:
        raise ConfigError(
            f"{option} {given} is no list of numbers", remedy="Write it as 0.1,0.3"
        ) from error


def _make(
    plan: Plan, missing: Sequence[PlannedRun], jobs: int, again: bool, out: Console
) -> list[Ended]:
    """Make the runs that are missing; what came of each.

    Raises:
        typer.Exit: stopped by Ctrl-C or SIGTERM.
    """
    from rss_rl.api.interruption import Interruption
    from rss_rl.cli.table_progress import TableProgress
    from rss_rl.results.tables.output import check_folder
    from rss_rl.results.tables.provide import Provider
    from rss_rl.results.tables.work import work_through

    check_folder(plan)
    progress = TableProgress(out, len(missing), jobs)
    provider = Provider(plan.table, None, None, progress.tell)
    try:
        with Interruption(progress.stopping) as interruption:
            asked = interruption.asked
            with run_workers(plan, jobs, asked, progress, _tune_workers) as workers:
                ended = work_through(
                    missing, workers, provider.provide, progress, stop=asked, again=again
                )
    finally:
        progress.close()
    if interruption.asked():
        out.print("Stopped; the same command goes on from here.")
        raise typer.Exit(interruption.exit_code)
    return ended


def _tune_workers() -> MakeWorkers:
    from rss_rl.cluster.tune_workers import TuneWorkers, check_tune

    check_tune()
    return TuneWorkers

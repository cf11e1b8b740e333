"""`rss-rl job`: list, watch and stop jobs on a Ray cluster."""

from __future__ import annotations

__all__ = ["Address", "app", "finish", "watch"]

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from rss_rl.api.terminal import say
from rss_rl.cli import options
from rss_rl.cli.options import argument, console, option

if TYPE_CHECKING:
    from rich.console import Console

    from rss_rl.cluster.jobs import Job, JobBoard

_INTERRUPTED = 130
_MARGIN_S = 15.0
_START_S = 20.0

_EPILOG = """
Examples:

`rss-rl job list --address http://HEAD:8265`

`rss-rl job status sick-20260314-151617`

`rss-rl job logs sick-20260314-151617` shows its output until it ends.

`rss-rl job stop sick-20260314-151617` stops it after the current update, with a checkpoint.
"""

app = typer.Typer(
    name="job",
    help="List, watch and stop jobs on a Ray cluster.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    epilog=_EPILOG,
)

Address = Annotated[
    str | None,
    option(
        "--address ADDRESS",
        "Address of the cluster: http://HEAD:8265 (dashboard), or HEAD:6379 or "
        "ray://HEAD:10001 if the dashboard has its usual port. Default: RAY_ADDRESS.",
    ),
]
JobName = Annotated[str, argument("JOB", "The job's name, as `rss-rl submit` printed it.")]
Follow = Annotated[bool, option("--follow/--no-follow", "Continue until the job ends.")]


@app.command("list", epilog=_EPILOG)
def list_(address: Address = None, insecure: options.Insecure = False) -> None:
    """List the jobs of a cluster."""
    out = console()
    for job in sorted(_open(address, insecure).jobs(), key=lambda job: job.name):
        say(out, f"{job.name}  {job.status}  {job.storage}")


@app.command(epilog=_EPILOG)
def status(job: JobName, address: Address = None, insecure: options.Insecure = False) -> None:
    """Show whether a job is waiting, running or ended; exit code 1 if it failed or was stopped."""
    found = _open(address, insecure).job(job)
    if found.ended:
        finish(found, console())
    else:
        say(console(), f"{found.status}: {found.message}")


@app.command(epilog=_EPILOG)
def logs(
    job: JobName, address: Address = None, follow: Follow = True, insecure: options.Insecure = False
) -> None:
    """Show a job's output; Ctrl-C stops showing it, but not the job."""
    board = _open(address, insecure)
    if not follow:
        _write(board.log(job))
        return
    try:
        board.follow(job, _write)
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None
    finish(board.job(job), console())


@app.command(epilog=_EPILOG)
def stop(job: JobName, address: Address = None, insecure: options.Insecure = False) -> None:
    """Stop a job after its current update, with a checkpoint."""
    out = console()
    _stop(_open(address, insecure), job, out)


def watch(board: JobBoard, name: str, out: Console) -> Job:
    """Show the job's output until it ends; Ctrl-C stops the job, a second one stops waiting.

    Raises:
        typer.Exit: after Ctrl-C.
    """
    shown = _Counter()
    try:
        if (job := board.wait(name, _START_S, start=True)).waits:
            say(out, f"{job.status}: {job.message}")
        board.follow(name, shown.write)
    except KeyboardInterrupt:
        say(out, "\nStopping the job (Ctrl-C again: do not wait for it) ...")
        try:
            _stop(board, name, out, shown.characters)
        except KeyboardInterrupt:
            say(out, f"See how it ends: rss-rl job status {name}")
        raise typer.Exit(_INTERRUPTED) from None
    return board.job(name)


def finish(job: Job, out: Console) -> None:
    """Print how the job ended; exit code 1 unless it succeeded."""
    say(out, f"{job.status}: {job.message}".rstrip(": "))
    if job.status != "SUCCEEDED":
        raise typer.Exit(1)


class _Counter:
    """Writes text and counts the characters."""

    def __init__(self) -> None:
        self.characters = 0

    def write(self, text: str) -> None:
        self.characters += len(text)
        _write(text)


def _stop(board: JobBoard, name: str, out: Console, shown: int | None = None) -> None:
    from rss_rl.cluster.package import STOP_WAIT_S

    board.stop(name)
    if board.wait(name, _START_S, start=True).waits:
        say(out, f"PENDING: {name}. Ray ends it once it has the resources to start, or in 15 min.")
        return
    job = board.wait(name, STOP_WAIT_S + _MARGIN_S)
    if shown is not None:
        _write(board.log(name)[shown:])
    say(out, f"{job.status}: {name}")
    if not job.ended:
        raise typer.Exit(1)


def _open(address: str | None, insecure: bool) -> JobBoard:
    from rss_rl.cluster.jobs import open_board

    return open_board(address, insecure=insecure)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()

"""What the command line adds to Python functions: results as text or JSON, and exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from rss_rl.api.terminal import SafeConsole, busy, plain_table, say, shell

if TYPE_CHECKING:
    from rss_rl.api.run import Run
    from rss_rl.api.sweeping import SweepResult

Json = Annotated[bool, Parameter(name="--json", help="Print JSON.")]
Markdown = Annotated[bool, Parameter(help="Print Markdown.")]
_WIDTH = 144


def console(*, stderr: bool = False) -> Console:
    """A console; outside a terminal, tables get a fixed width."""
    made = SafeConsole(stderr=stderr, highlight=False)
    return made if made.is_terminal else SafeConsole(stderr=stderr, highlight=False, width=_WIDTH)


def echo(text: str) -> None:
    """Print lines as they are."""
    sys.stdout.write(f"{text}\n")


def echo_json(tree: Any, indent: int | None = 2) -> None:
    """Print JSON."""
    echo(json.dumps(tree, indent=indent, ensure_ascii=False, default=str))


def fitted(call: Callable[..., Run], *, json_: Json = False) -> None:
    """Train, print the report, and write it as a page."""
    out = console(stderr=json_)
    finished(run := call(console=out), out, json_)
    if not json_:
        write_page(run, out)


def trained(call: Callable[..., Run], *, json_: Json = False) -> None:
    """Train, and print the report."""
    out = console(stderr=json_)
    finished(call(console=out), out, json_)


def swept(call: Callable[..., SweepResult]) -> None:
    """Sweep; runs that failed make an exit code of 1."""
    result = call(console=console())
    if result.stopped_by is not None:
        raise SystemExit(128 + result.stopped_by)
    if result.failed:
        raise SystemExit(1)


def finished(run: Run, out: Console, as_json: bool) -> None:
    """Show the report of a finished run.

    Raises:
        SystemExit: the run was stopped by a signal; 130 after Ctrl-C, 143 after SIGTERM.
    """
    if run.stopped_by is not None:
        raise SystemExit(128 + run.stopped_by)
    if as_json:
        echo_json(run.report)
        return
    print_report(out, run.path, run.report)


def print_report(out: Console, run: Path, found: Mapping[str, Any]) -> None:
    """Print the final report of a run, and commands to continue with."""
    from rss_rl.results.linear import read_linear
    from rss_rl.results.score_cells import mode_cells, modes_frame, modes_note
    from rss_rl.results.sentences import linear_sentence

    for split, modes in found["splits"].items():
        out.print(plain_table(*mode_cells(modes_frame(modes), split), left=1), "")
    say(out, modes_note(mode for modes in found["splits"].values() for mode in modes), "dim")
    say(
        out,
        f"{found['parameters']:,} parameters without embeddings; {found['steps']:,} updates, "
        f"best on dev at {found['best_step']:,}; {found['wall_seconds']:,.0f} s, "
        f"{found['examples_per_second']:,.0f} examples/s; seed {found['seed']}",
    )
    every = [scores for modes in found["splits"].values() for scores in modes.values()]
    if any("rationale_f1" in scores for scores in every):
        say(
            out,
            "precision, recall, F1: the kept tokens compared with those that decide the label; "
            "random F1: the same for as many random tokens",
            "dim",
        )
    for split in found["splits"]:
        if (plain := linear_sentence(read_linear(run), split)) is not None:
            say(out, f"\n{split}: {plain}")
    say(out, f"\nRun:     {run}")
    say(out, f"Curves:  {shell('tensorboard', '--logdir', run)}")
    say(out, f'Try it:  {shell("rss-rl", "select", run)} "..."')


def write_page(run: Run, out: Console) -> None:
    """Write the report of a finished run as a page in its directory, and print its path."""
    from rss_rl.pages.report import write_report_page

    with busy(out, "writing the report"):
        page = write_report_page([run.path], run.path / "report.html", trust=run.trust)
    say(out, f"\nOpen:    {page.absolute()}")

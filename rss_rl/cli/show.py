"""What the command line adds to Python functions: results as text or JSON, and exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from rss_rl.api.terminal import SafeConsole, say

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
    from rss_rl.cli.report import print_report

    print_report(out, run.path, run.report)


def write_page(run: Run, out: Console) -> None:
    """Write the report of a finished run as a page in its directory, and print its path."""
    from rss_rl.pages.report import write_report_page

    with out.status("writing the report"):
        page = write_report_page([run.path], run.path / "report.html", trust=run.trust)
    say(out, f"\nOpen:    {page.absolute()}")

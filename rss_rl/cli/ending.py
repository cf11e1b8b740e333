"""How a command that trains ends: with the report, or with the signal that stopped it."""

from __future__ import annotations

__all__ = ["end"]

from typing import TYPE_CHECKING

import typer
from rich.console import Console

from rss_rl.api.scores import show_report

if TYPE_CHECKING:
    from rss_rl.api.run import Run


def end(run: Run, out: Console, *, as_json: bool) -> None:
    """Show the report of a finished run.

    Raises:
        typer.Exit: the run was stopped by a signal; 130 after Ctrl-C, 143 after SIGTERM.
    """
    if run.stopped_by is not None:
        raise typer.Exit(128 + run.stopped_by)
    show_report(out, run.path, run.report, as_json=as_json)

"""Arguments and options that several commands share, with what their help says."""

from __future__ import annotations

__all__ = ["ConfigName", "Json", "Overrides", "RunPath", "console"]

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a run.")]
ConfigName = Annotated[
    str,
    typer.Argument(
        metavar="CONFIG",
        help="A YAML file, or a name that `rss-rl config list` shows.",
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Settings that differ from the file: `learner.policy.l2=1e-4 phases.0.steps=500`.",
    ),
]

_WIDTH = 120


def console(*, stderr: bool = False) -> Console:
    """A console whose tables keep their width where no terminal limits it."""
    made = Console(stderr=stderr, highlight=False)
    return made if made.is_terminal else Console(stderr=stderr, highlight=False, width=_WIDTH)

"""Arguments and options that several commands share, with what their help says."""

from __future__ import annotations

__all__ = [
    "Again",
    "ConfigName",
    "DryRun",
    "Json",
    "ModelPath",
    "OnlyRead",
    "Overrides",
    "RunPath",
    "TextB",
    "TextColumn",
    "TrustPlugins",
    "console",
    "text_columns",
    "trust",
]

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from rss_rl.components import Trust

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a run.")]
ModelPath = Annotated[
    Path, typer.Argument(metavar="RUN|EXPORT", help="Directory of a run or of an export.")
]
TextColumn = Annotated[
    str | None,
    typer.Option("--text", metavar="COLUMN", help="Column of the text, or of a pair's first."),
]
TextB = Annotated[
    str | None, typer.Option("--text-b", metavar="COLUMN", help="Column of a pair's second text.")
]
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
OnlyRead = Annotated[bool, typer.Option("--only-read", help="Make nothing; show what is finished.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and stop.")]
Again = Annotated[
    bool, typer.Option("--again", help="Replace runs that were made with other settings or data.")
]

TrustPlugins = Annotated[
    bool,
    typer.Option(
        "--trust-plugins",
        help="Import components that the run or export names as package.module:OBJECT. Its files "
        "can then run any code: for your own, or those of somebody you trust.",
    ),
]

_WIDTH = 120


def trust(plugins: bool) -> Trust:
    """What --trust-plugins says."""
    from rss_rl.components import EVERYTHING, NOTHING

    return EVERYTHING if plugins else NOTHING


def console(*, stderr: bool = False) -> Console:
    """A console whose tables keep their width where no terminal limits it."""
    made = Console(stderr=stderr, highlight=False)
    return made if made.is_terminal else Console(stderr=stderr, highlight=False, width=_WIDTH)


def text_columns(text: str | None, text_b: str | None) -> tuple[str, ...]:
    """The columns that were named."""
    return tuple(name for name in (text, text_b) if name is not None)

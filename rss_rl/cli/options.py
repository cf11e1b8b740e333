"""Arguments and options shared by several commands."""

from __future__ import annotations

import json
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from rss_rl.api.terminal import SafeConsole, say

if TYPE_CHECKING:
    from rss_rl.api.run import Run
    from rss_rl.components import Trust


def option(spec: str, help_: str, **more: Any) -> Any:
    """An option of a command.

    Args:
        spec: its flag and what its value is called, as in `--out DIR`; without the latter, the type
            says what it is.
        more: of `typer.Option`.
    """
    flag, _, metavar = spec.partition(" ")
    return typer.Option(flag, metavar=metavar or None, help=help_, **more)


def argument(metavar: str, help_: str) -> Any:
    """An argument of a command, by what it is called."""
    return typer.Argument(metavar=metavar, help=help_)


Json = Annotated[bool, option("--json", "Print JSON.")]
Markdown = Annotated[bool, option("--markdown", "Print Markdown.")]
RunPaths = Annotated[list[Path], argument("RUN...", "Directory of a run, or several.")]
RunPath = Annotated[Path, argument("RUN", "Directory of a run.")]
ModelPath = Annotated[Path, argument("RUN|EXPORT", "Directory of a run or of an export.")]
Which = Annotated[str, option("--which best|latest|STEP", "Checkpoint of a run.")]
Device = Annotated[
    str | None, option("--device", "cpu, cuda, ... Default: the device that the run trained on.")
]
ComputeOn = Annotated[str, option("--device cpu|cuda|cuda:N", "Where to compute.")]
TextColumn = Annotated[
    str | None, option("--text COLUMN", "Column of the text, or of a pair's first.")
]
TextB = Annotated[str | None, option("--text-b COLUMN", "Column of a pair's second text.")]
VECTORS, BAD_ROWS = "Words and vectors", "Bad rows and output"
ConfigName = Annotated[
    str, argument("CONFIG", "A YAML file, or a name that `rss-rl config list` shows.")
]
Overrides = Annotated[
    list[str] | None,
    argument(
        "[KEY=VALUE]...",
        "Settings that differ from the file: `learner.policy.l2=1e-4 phases.0.steps=500`.",
    ),
]
OwnSettings = Annotated[
    list[str] | None,
    argument("[KEY=VALUE]...", "Settings that override those chosen from the data."),
]
Insecure = Annotated[
    bool, option("--insecure", "Also use a cluster that anybody can use without a token.")
]
OnlyRead = Annotated[bool, option("--only-read", "Train nothing; show what is finished.")]
DryRun = Annotated[bool, option("--dry-run", "Show what would be done, and stop.")]


table_option = partial(option, rich_help_panel="Your own files")
"""An option about the user's own files."""


class TaskKind(StrEnum):
    """What the label column holds."""

    classes = "classes"
    score = "score"


LabelColumn = Annotated[str | None, table_option("--label COLUMN", "Column with the label.")]
Task = Annotated[TaskKind, table_option("--task", "Whether labels are classes or numbers.")]
Low = Annotated[
    float | None,
    table_option("--low", "Lowest possible score. Default: the lowest of the training rows."),
]
High = Annotated[float | None, table_option("--high", "Highest possible score.")]
DevRows = Annotated[
    Path | None,
    table_option("--dev FILE", "Development split. Default: split off from the training rows."),
]
TestRows = Annotated[
    Path | None,
    table_option("--test FILE", "Test split. Default: split off from the training rows."),
]
SkipBadRows = Annotated[
    bool,
    option(
        "--skip-bad-rows",
        "Leave bad rows out, and list them in rejects.jsonl. Default: the first bad row is "
        "an error.",
        rich_help_panel=BAD_ROWS,
    ),
]
Vectors = Annotated[
    list[Path] | None,
    option(
        "--vectors FILE",
        "GloVe text (plain, .gz, .zip or ARCHIVE.zip:FILE), word2vec binary (.bin), or "
        "static:FOLDER_OR_PACKAGE for subword vectors such as those of model2vec and wordllama, or "
        "encoder:FOLDER_OR_HUB_NAME for a pretrained encoder that reads each word alone. "
        "Repeat it to concatenate several. Default: random vectors; of `fit`, those of "
        "--pretrained, or of an installed package, if there is one.",
        rich_help_panel=VECTORS,
    ),
]
Overwrite = Annotated[bool, option("--overwrite", "Replace an existing run in the directory.")]
TakeOver = Annotated[
    bool,
    option(
        "--take-over",
        "Write to --storage even if another process seems to write there. "
        "Use it only if that process has stopped.",
    ),
]
Time = Annotated[
    str | None,
    option(
        "--time DURATION", "Longest training time, such as 90s, 5m or 2h, divided among the phases."
    ),
]
TrustPlugins = Annotated[
    bool,
    option(
        "--trust-plugins",
        "Import components that the run or export names as package.module:OBJECT. This can "
        "run any code, so use it only for files of your own or of somebody you trust.",
    ),
]

_WIDTH = 144


def trust(plugins: bool) -> Trust:
    """The trust that --trust-plugins grants."""
    from rss_rl.components import EVERYTHING, NOTHING

    return EVERYTHING if plugins else NOTHING


def console(*, stderr: bool = False) -> Console:
    """A console; outside a terminal, tables get a fixed width."""
    made = SafeConsole(stderr=stderr, highlight=False)
    return made if made.is_terminal else SafeConsole(stderr=stderr, highlight=False, width=_WIDTH)


def checkpoint(which: str) -> str | int:
    """Parse --which: a step as an int; best and latest unchanged."""
    return int(which) if which.isdecimal() else which


def end_run(run: Run, out: Console, *, as_json: bool, page: bool = False) -> None:
    """Show the report of a finished run.

    Args:
        page: also write it as a page, see `write_page`; not with `as_json`.

    Raises:
        typer.Exit: the run was stopped by a signal; 130 after Ctrl-C, 143 after SIGTERM.
    """
    if run.stopped_by is not None:
        raise typer.Exit(128 + run.stopped_by)
    if as_json:
        typer.echo(json.dumps(run.report, indent=2))
    else:
        from rss_rl.api.scores import print_report

        print_report(out, run.path, run.report)
        if page:
            write_page(run, out)


def write_page(run: Run, out: Console) -> None:
    """Write the report of a finished run as a page in its directory, and print its path."""
    from rss_rl.pages.report import write_report_page

    with out.status("writing the report"):
        page = write_report_page([run.path], run.path / "report.html", trust=run.trust)
    say(out, f"\nOpen:    {page.absolute()}")


def text_columns(text: str | None, text_b: str | None) -> tuple[str, ...]:
    """The columns that were named."""
    return tuple(name for name in (text, text_b) if name is not None)

"""Arguments and options shared by several commands."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from rss_rl.api.scores import print_report
from rss_rl.api.terminal import SafeConsole, say

if TYPE_CHECKING:
    from rss_rl.api.run import Run
    from rss_rl.components import Trust

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print Markdown.")]
RunPaths = Annotated[
    list[Path], typer.Argument(metavar="RUN...", help="Directory of a run, or several.")
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a run.")]
ModelPath = Annotated[
    Path, typer.Argument(metavar="RUN|EXPORT", help="Directory of a run or of an export.")
]
Which = Annotated[
    str, typer.Option("--which", metavar="best|latest|STEP", help="Checkpoint of a run.")
]
Device = Annotated[
    str | None,
    typer.Option("--device", help="cpu, cuda, ... Default: the device that the run trained on."),
]
TextColumn = Annotated[
    str | None,
    typer.Option("--text", metavar="COLUMN", help="Column of the text, or of a pair's first."),
]
TextB = Annotated[
    str | None, typer.Option("--text-b", metavar="COLUMN", help="Column of a pair's second text.")
]
VECTORS, BAD_ROWS = "Words and vectors", "Bad rows and output"
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
OwnSettings = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...", help="Settings that override those chosen from the data."
    ),
]
Insecure = Annotated[
    bool,
    typer.Option("--insecure", help="Also use a cluster that anybody can use without a token."),
]
OnlyRead = Annotated[
    bool, typer.Option("--only-read", help="Train nothing; show what is finished.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and stop.")]


def table_option(flag: str, help_: str, metavar: str | None = "COLUMN") -> Any:
    """An option about the user's own files; `metavar` None derives it from the type."""
    return typer.Option(flag, metavar=metavar, help=help_, rich_help_panel="Your own files")


class TaskKind(StrEnum):
    """What the label column holds."""

    classes = "classes"
    score = "score"


LabelColumn = Annotated[str | None, table_option("--label", "Column with the label.")]
Task = Annotated[TaskKind, table_option("--task", "Whether labels are classes or numbers.", None)]
Low = Annotated[
    float | None,
    table_option("--low", "Lowest possible score. Default: the lowest of the training rows.", None),
]
High = Annotated[float | None, table_option("--high", "Highest possible score.", None)]
DevRows = Annotated[
    Path | None,
    table_option("--dev", "Development split. Default: split off from the training rows.", "FILE"),
]
TestRows = Annotated[
    Path | None,
    table_option("--test", "Test split. Default: split off from the training rows.", "FILE"),
]
SkipBadRows = Annotated[
    bool,
    typer.Option(
        "--skip-bad-rows",
        help="Leave bad rows out, and list them in rejects.jsonl. Default: the first bad row is "
        "an error.",
        rich_help_panel=BAD_ROWS,
    ),
]
Vectors = Annotated[
    list[Path] | None,
    typer.Option(
        "--vectors",
        metavar="FILE",
        help="GloVe text (plain, .gz, .zip or ARCHIVE.zip:FILE), word2vec binary (.bin), or "
        "static:FOLDER_OR_PACKAGE for subword vectors such as those of model2vec and wordllama. "
        "Repeat it to concatenate several. Default: random vectors; of `fit`, those of an "
        "installed package, if there is one.",
        rich_help_panel=VECTORS,
    ),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace an existing run in the directory.")
]
TakeOver = Annotated[
    bool,
    typer.Option(
        "--take-over",
        help="Write to --storage even if another process seems to write there. "
        "Use it only if that process has stopped.",
    ),
]
Time = Annotated[
    str | None,
    typer.Option(
        "--time",
        metavar="DURATION",
        help="Longest training time, such as 90s, 5m or 2h, divided among the phases.",
    ),
]
TrustPlugins = Annotated[
    bool,
    typer.Option(
        "--trust-plugins",
        help="Import components that the run or export names as package.module:OBJECT. This can "
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


def split_list(given: str | None) -> list[str]:
    """The items of an option such as `A,B`; empty if not given."""
    return [item.strip() for item in (given or "").split(",") if item.strip()]


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

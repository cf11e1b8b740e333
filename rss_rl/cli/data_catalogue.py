"""`rss-rl data list` and `rss-rl data fetch`: the known datasets, and how to get them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from rss_rl.api.terminal import SafeConsole
from rss_rl.cli import options
from rss_rl.cli.options import argument, option
from rss_rl.data.catalogue import catalogue, entry
from rss_rl.data.sources import known_sources
from rss_rl.data.staging import Progress as Report
from rss_rl.errors import DataError, nearest

LIST_EPILOG = """
Examples:

`rss-rl data list`

`rss-rl data list snli` (licence, addresses, checksums, how to get it by hand)
"""

FETCH_EPILOG = """
Examples:

`rss-rl data fetch sick-relatedness`

`rss-rl data fetch glove-6b --to vectors`

`rss-rl data fetch lambada --mirror https://mirror.example.org/lambada`

Files that are there already are checked and used. Without access to the internet, put the files
named by `rss-rl data list NAME` into the folder by hand; the command then checks and unpacks them.
HTTPS_PROXY sets a proxy.
"""

_WITHOUT_FILES = {"made": "made sentences", "included": "real sentences"}
"""Task of sources that need no files, by capability."""

_BARS = (
    TextColumn("{task.description}"),
    BarColumn(bar_width=20),
    DownloadColumn(),
    TransferSpeedColumn(),
    TimeRemainingColumn(),
)


def list_(
    name: Annotated[str | None, argument("[NAME]", "Show all details of this dataset.")] = None,
    json_: options.Json = False,
) -> None:
    """List the datasets known by name: task, rows, size, licence, and how to get each."""
    known = list({**known_sources(), **catalogue()})
    if name is not None and name not in known:
        what = f"nothing is called '{name}'{nearest(name, known)}"
        raise DataError(what, remedy="See `rss-rl data list`")
    if json_:
        described = [_described(item) for item in known if name in (None, item)]
        typer.echo(json.dumps(described if name is None else described[0], indent=2))
    elif name is None:
        _print_all(known)
    else:
        _print_one(_described(name))


def fetch(
    name: Annotated[str, argument("NAME", "A dataset of `rss-rl data list`.")],
    to: Annotated[
        Path | None,
        option("--to DIR", "Folder to put it in. Default: a folder of its own below downloads."),
    ] = None,
    mirror: Annotated[
        str | None,
        option(
            "--mirror URL-PREFIX",
            "Take the files from URL-PREFIX/FILE, a copy that you trust; http is allowed "
            "here. Known sizes and checksums are compared.",
        ),
    ] = None,
    force: Annotated[bool, option("--force", "Download again even if the files exist.")] = False,
    json_: options.Json = False,
) -> None:
    """Download a dataset, check it, and unpack it to where `rss-rl data prepare` reads it."""
    from rss_rl.data.fetch import fetch as fetch_entry

    if way := _without_files(name):
        raise DataError(
            f"{name} is {way} and not fetched", remedy=f"rss-rl data prepare {name} --out DIR"
        )
    found = entry(name)
    folder = to or found.default_folder
    with progress_lines(_BARS, quiet=json_) as report:
        files = fetch_entry(found, folder, mirror=mirror, force=force, progress=report)
    command = found.command(folder)
    if json_:
        listed = [asdict(file) for file in files]
        shown = {"name": name, "folder": str(folder), "files": listed, "next": command}
        typer.echo(json.dumps(shown, indent=2))
        return
    for file in files:
        typer.echo(f"{file.name}: {file.size:,} bytes, {file.source or 'there already'}")
        published = "as published" if file.checked else "with no published one to compare"
        typer.echo(f"  SHA-256 {file.sha256}, {published}")
    typer.echo(f"licence: {found.licence}; {found.home}\nnext:\n{command}")


@contextmanager
def progress_lines(columns: Sequence[ProgressColumn], *, quiet: bool) -> Iterator[Report]:
    """A live progress line with `columns` per task, on standard error."""
    with Progress(*columns, console=SafeConsole(stderr=True), disable=quiet) as shown:
        tasks: dict[str, Any] = {}

        def report(what: str, done: int, end: int | None) -> None:
            if what not in tasks:
                tasks[what] = shown.add_task(escape(what), total=end, completed=done)
            shown.update(tasks[what], completed=done, total=end)

        yield report


def _described(name: str) -> dict[str, Any]:
    """Everything that is known about a dataset, for a person as well as for a program."""
    source, known = known_sources().get(name), catalogue().get(name)
    way = _without_files(name)
    shown: dict[str, Any] = {"name": name, "get": way or "by hand"}
    if source is not None:
        shown |= {"summary": source.help, "needs": source.needs or f"nothing: it is {way}"}
        files = "" if way else " --from FOLDER"
        shown["prepare"] = f"rss-rl data prepare {name}{files} --out prepared/{name}"
    if known is not None:
        shown |= known.model_dump(exclude={"folder", "prepares", "vectors", "about_mb"})
        shown["get"] = f"rss-rl data fetch {name}" if known.direct else "by hand"
        shown["megabytes"] = known.megabytes and round(known.megabytes, 1)
        shown["folder"] = str(known.default_folder)
        shown["prepare"] = known.command(known.default_folder)
    return shown


def _without_files(name: str) -> str:
    """The capability by which a source needs no files, `made` or `included`; empty if it does."""
    source = known_sources().get(name)
    return next((way for way in _WITHOUT_FILES if source is not None and source.can(way)), "")


def _print_all(names: list[str]) -> None:
    shown = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    shown.add_column("name", no_wrap=True)
    shown.add_column("task", min_width=15, max_width=15)
    shown.add_column("rows", max_width=15)
    shown.add_column("MB", justify="right", no_wrap=True)
    shown.add_column("licence", max_width=14)
    shown.add_column("get it", no_wrap=True)
    for name in names:
        known = catalogue().get(name)
        if known is None:
            way = _without_files(name)
            shown.add_row(name, _WITHOUT_FILES.get(way, "?"), "-", "-", "-", way or "by hand")
            continue
        rows = "-" if known.vectors else " / ".join(f"{n:,}" for n in known.rows.values()) or "?"
        size = "?" if known.megabytes is None else f"{known.megabytes:,.1f}"
        licence = known.licence.partition(";")[0].partition(" (")[0].partition(":")[0]
        way = "fetch" if known.direct else "by hand"
        shown.add_row(name, known.task, rows, size, escape(licence), way)
    SafeConsole().print(shown)
    typer.echo(
        "\nrows: train / dev / test as published, or all. Of one: rss-rl data list NAME\n"
        "fetch: rss-rl data fetch NAME. by hand: its page is in rss-rl data list NAME\n"
        "your own: rss-rl data prepare FILE --text COLUMN --label COLUMN --out DIR"
    )


def _print_one(described: dict[str, Any]) -> None:
    shown = Table(box=None, pad_edge=False, show_header=False)
    shown.add_column(no_wrap=True, style="bold")
    shown.add_column(overflow="fold")
    for key, value in described.items():
        if key == "files":
            for file in value:
                size = f"{file['size']:,} bytes" if file["size"] else "size not known"
                where = file["url"] or f"{file['name']} (no address without a page)"
                shown.add_row("file", escape(f"{where}, {size}"))
                shown.add_row("", f"SHA-256 {file['sha256'] or 'not known'}")
            continue
        if isinstance(value, dict):
            value = ", ".join(f"{split} {count:,}" for split, count in value.items())
        if value:
            shown.add_row(key.replace("_", " "), escape(str(value)))
    SafeConsole().print(shown)

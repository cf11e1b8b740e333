"""`rss-rl data list` and `rss-rl data fetch`: the known datasets, and how to get them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
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
from rss_rl.data.fetching.catalogue import CATALOGUE, entry
from rss_rl.data.fetching.download import Retries
from rss_rl.data.fetching.entries import Entry
from rss_rl.data.fetching.fetch import fetch as fetch_entry
from rss_rl.data.fetching.record import FETCHED_FILE, Fetched
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

The same command resumes an interrupted download. Without access
to the internet, put the files named by `rss-rl data list NAME` into the folder by hand; the command
then checks and unpacks them. HTTPS_PROXY sets a proxy. The folder's fetched.json lists the files
with their SHA-256.
"""

_TASKS = {"made": ("made sentences", "-"), "included": ("real sentences", "-")}
"""Task and other columns of sources that need no files, by capability."""

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
    known = {**known_sources(), **CATALOGUE}
    if name is not None and name not in known:
        what = f"nothing is called '{name}'{nearest(name, list(known))}"
        raise DataError(what, remedy="See `rss-rl data list`")
    if json_:
        described = [_described(item) for item in known if name in (None, item)]
        typer.echo(json.dumps(described if name is None else described[0], indent=2))
    elif name is None:
        _print_all(SafeConsole(), list(known))
    else:
        _print_one(SafeConsole(), name)


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
    if way := _without_files(name):
        raise DataError(
            f"{name} is {way} and not fetched", remedy=f"rss-rl data prepare {name} --out DIR"
        )
    found = entry(name)
    folder = to or found.default_folder
    with _kept_on_interrupt(folder), progress_lines(_BARS, quiet=json_) as report:
        files = fetch_entry(
            found, folder, mirror=mirror, force=force, retries=Retries(), progress=report
        )
    command = found.command(folder)
    if json_:
        listed = [asdict(file) for file in files]
        shown = {"name": name, "folder": str(folder), "files": listed, "next": command}
        typer.echo(json.dumps(shown, indent=2))
        return
    _print_fetched(found, folder, files)
    typer.echo(command)


@contextmanager
def _kept_on_interrupt(folder: Path) -> Iterator[None]:
    """After Ctrl-C, say which partial downloads are kept."""
    try:
        yield
    except KeyboardInterrupt:
        parts = [f"{part} ({part.stat().st_size:,} bytes)" for part in folder.glob("*.part")]
        typer.echo(
            f"stopped; kept: {', '.join(parts) or 'nothing'}. The same command resumes.",
            err=True,
        )
        raise typer.Exit(130) from None


@contextmanager
def progress_lines(
    columns: Sequence[ProgressColumn], *, quiet: bool, console: Console | None = None
) -> Iterator[Report]:
    """A live progress line with `columns` per task, on standard error."""
    where = console or SafeConsole(stderr=True)
    with Progress(*columns, console=where, disable=quiet) as shown:
        tasks: dict[str, Any] = {}

        def report(what: str, done: int, end: int | None) -> None:
            if what not in tasks:
                # Bytes that an earlier command downloaded do not count for the speed.
                tasks[what] = shown.add_task(escape(what), total=end, completed=done)
            shown.update(tasks[what], completed=done, total=end)

        yield report


def _print_fetched(found: Entry, folder: Path, files: list[Fetched]) -> None:
    for file in files:
        came = "there already" if file.before else f"from {file.source}"
        typer.echo(f"{file.name}: {file.size:,} bytes, {came}")
        typer.echo(f"  SHA-256 {file.sha256}" + (", as published" if file.checked else ""))
        if not file.checked:
            typer.echo(
                "  checksum not known: the size and the archive's own integrity are checked, and "
                f"the SHA-256 of the download is recorded in {folder / FETCHED_FILE}"
            )
    typer.echo(f"licence: {found.licence}; {found.home}")
    typer.echo("next:")


def _described(name: str) -> dict[str, Any]:
    source, known = known_sources().get(name), CATALOGUE.get(name)
    shown: dict[str, Any] = {"name": name, "summary": "", "needs": ""}
    if source is not None:
        shown |= {"summary": source.help, "needs": source.needs}
    shown["get"] = _way(name)
    if known is not None:
        shown |= asdict(known) | {"needs": known.needs, "folder": known.default_folder.name}
        del shown["about_mb"]
        shown["megabytes"] = None if known.megabytes is None else round(known.megabytes, 1)
    return shown


def _way(name: str) -> str:
    known = CATALOGUE.get(name)
    if known is not None:
        return "fetch" if known.direct else "by hand"
    return _without_files(name) or "by hand"


def _without_files(name: str) -> str:
    """The capability by which a source needs no files, `made` or `included`; empty if it does."""
    source = known_sources().get(name)
    return next((way for way in _TASKS if source is not None and source.can(way)), "")


def _print_all(console: Console, names: list[str]) -> None:
    shown = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    shown.add_column("name", no_wrap=True)
    shown.add_column("task", min_width=15, max_width=15)
    shown.add_column("rows", max_width=15)
    shown.add_column("MB", justify="right", no_wrap=True)
    shown.add_column("licence", max_width=14)
    shown.add_column("get it", no_wrap=True)
    for name in names:
        known = CATALOGUE.get(name)
        if known is None:
            task, unknown = _TASKS.get(_without_files(name), ("?", "?"))
            shown.add_row(name, task, unknown, unknown, unknown, _way(name))
            continue
        rows = "-" if known.vectors else " / ".join(f"{n:,}" for n in known.rows.values()) or "?"
        shown.add_row(name, known.task, rows, _size(known), escape(_short(known)), _way(name))
    console.print(shown)
    typer.echo(
        "\nrows: train / dev / test as published, or all. Of one: rss-rl data list NAME\n"
        "fetch: rss-rl data fetch NAME. by hand: its page is in rss-rl data list NAME\n"
        "your own: rss-rl data prepare FILE --text COLUMN --label COLUMN --out DIR"
    )


def _short(known: Entry) -> str:
    """The licence without its explanation."""
    return known.licence.partition(";")[0].partition(" (")[0].partition(":")[0]


def _size(known: Entry) -> str:
    return "?" if known.megabytes is None else f"{known.megabytes:,.1f}"


def _print_one(console: Console, name: str) -> None:
    shown = Table(box=None, pad_edge=False, show_header=False)
    shown.add_column(no_wrap=True, style="bold")
    shown.add_column(overflow="fold")
    for key, value in _details(name):
        shown.add_row(key, escape(value))
    console.print(shown)


def _details(name: str) -> Iterator[tuple[str, str]]:
    source, known = known_sources().get(name), CATALOGUE.get(name)
    yield "name", name
    if source is not None:
        yield "what", source.help
        way = _without_files(name)
        yield "reads", source.needs or (f"nothing: it is {way}" if way else "?")
        if known is None:
            files = "" if way else " --from FOLDER"
            yield "use", f"rss-rl data prepare {name}{files} --out prepared/{name}"
    if known is None:
        return
    yield "task", known.task
    if not known.vectors:
        rows = ", ".join(f"{split} {count:,}" for split, count in known.rows.items())
        yield "rows", rows or "?"
    yield "download", f"{_size(known)} MB"
    yield "licence", known.licence
    yield "page", known.home
    for file in known.files:
        size = "size not known" if file.size is None else f"{file.size:,} bytes"
        yield "file", f"{file.url or f'{file.name} (no address without a page)'}, {size}"
        yield "", f"SHA-256 {file.sha256}" if file.sha256 else "checksum not known"
    if known.direct:
        yield "fetch", f"rss-rl data fetch {name}"
    put = f"; put it into {known.default_folder} and fetch" if known.files else ""
    yield "by hand", known.by_hand + put
    yield "use", known.command(known.default_folder)
    if known.note:
        yield "note", known.note

"""`rss-rl data`: datasets that are known, and prepared ones."""

from __future__ import annotations

__all__ = ["app", "example_line"]

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console

from rss_rl.api.encode import encode
from rss_rl.api.options import Directory
from rss_rl.api.prepare import prepare
from rss_rl.api.terminal import SafeConsole, counted, plain_table
from rss_rl.cli.commands import add, group
from rss_rl.cli.show import echo
from rss_rl.config import yaml_text
from rss_rl.data.catalogue import catalogue, entry
from rss_rl.data.checks import joined_labels
from rss_rl.data.manifest import Manifest
from rss_rl.data.sources import known_sources
from rss_rl.data.states import StatesInfo, stored_states
from rss_rl.data.store import Prepared, Split, open_prepared
from rss_rl.errors import DataError, nearest

app = group("data", "List datasets, fetch them, prepare them for training, show what was prepared.")
_WITHOUT_FILES = {"generated": "made sentences", "included": "real sentences"}
"""Task of sources that need no files, by capability."""


def _prepared(call: Callable[..., Prepared]) -> None:
    start = time.monotonic()
    with counted(SafeConsole(stderr=True), "preparing") as report:
        found = call(progress=report)
    _print_summary(found)
    out = call.keywords["out"]  # type: ignore[attr-defined]
    echo(f"Written to {out} in {time.monotonic() - start:.1f} s.")


def _encoded(call: Callable[..., StatesInfo]) -> None:
    start = time.monotonic()
    with counted(SafeConsole(stderr=True), "encoding") as report:
        info = call(progress=report)
    echo(f"Written in {time.monotonic() - start:.1f} s: {info.size} numbers per word.")


def list_(name: str | None = None) -> None:
    """List the datasets known by name: task, rows, size, licence, and how to get each.

    Args:
        name: Show all details of this dataset.

    Examples:
        `rss-rl data list`

        `rss-rl data list snli` (licence, addresses, checksums, how to get it by hand)
    """
    known = list({**known_sources(), **catalogue()})
    if name is None:
        _print_all(known)
    elif name in known:
        echo(yaml_text(_described(name)).rstrip("\n"))
    else:
        what = f"nothing is called '{name}'{nearest(name, known)}"
        raise DataError(what, remedy="See `rss-rl data list`")


def fetch(
    name: str,
    *,
    to: Directory = None,
    mirror: Annotated[str | None, Parameter(metavar="URL-PREFIX")] = None,
    force: bool = False,
) -> None:
    """Download a dataset, check it, and unpack it to where `rss-rl data prepare` reads it.

    Files that are there already are checked and used. Without access to the internet, put the files
    named by `rss-rl data list NAME` into the folder by hand; the command then checks and unpacks
    them. HTTPS_PROXY sets a proxy.

    Args:
        name: A dataset of `rss-rl data list`.
        to: Folder to put it in. Default: a folder of its own below downloads.
        mirror: Take the files from URL-PREFIX/FILE, a copy that you trust; http is allowed here.
            Known sizes and checksums are compared.
        force: Download again even if the files exist.

    Examples:
        `rss-rl data fetch sick-relatedness`

        `rss-rl data fetch glove-6b --to vectors`

        `rss-rl data fetch lambada --mirror https://mirror.example.org/lambada`
    """
    from rss_rl.data.fetch import fetch as fetch_entry

    if way := _without_files(name):
        raise DataError(
            f"{name} is {way} and not fetched", remedy=f"rss-rl data prepare {name} --out DIR"
        )
    found = entry(name)
    folder = Path(to or found.default_folder)
    with counted(SafeConsole(stderr=True), "fetching") as report:
        files = fetch_entry(found, folder, mirror=mirror, force=force, progress=report)
    for file in files:
        echo(f"{file.name}: {file.size:,} bytes, {file.source or 'there already'}")
        published = "as published" if file.checked else "with no published one to compare"
        echo(f"  SHA-256 {file.sha256}, {published}")
    echo(f"licence: {found.licence}; {found.home}\nnext:\n{found.command(folder)}")


def show(
    prepared: str,
    *,
    examples: Annotated[int, Parameter(validator=Number(gte=0))] = 0,
) -> None:
    """Show what a prepared directory or URI holds.

    Args:
        prepared: A prepared directory, or its URI.
        examples: Also show this many training rows.

    Examples:
        `rss-rl data show data/reviews --examples 3`
    """
    opened = open_prepared(prepared)
    opened.check()
    _print_summary(opened)
    train = opened.split("train")
    for row in range(min(examples, len(train))):
        echo(example_line(train, row))


add(app, prepare, _prepared)
add(app, list_)
add(app, fetch)
add(app, encode, _encoded)
add(app, show)


def _described(name: str) -> dict[str, Any]:
    """Everything that is known about a dataset."""
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
    """The capability by which a source needs no files, `generated` or `included`; else empty."""
    source = known_sources().get(name)
    return next((way for way in _WITHOUT_FILES if source is not None and source.can(way)), "")


def _print_all(names: list[str]) -> None:
    rows = []
    for name in names:
        known = catalogue().get(name)
        if known is None:
            way = _without_files(name)
            rows.append([name, _WITHOUT_FILES.get(way, "?"), "-", "-", "-", way or "by hand"])
            continue
        counts = "-" if known.vectors else " / ".join(f"{n:,}" for n in known.rows.values()) or "?"
        size = "?" if known.megabytes is None else f"{known.megabytes:,.1f}"
        licence = known.licence.partition(";")[0].partition(" (")[0].partition(":")[0]
        rows.append(
            [name, known.task, counts, size, licence, "fetch" if known.direct else "by hand"]
        )
    table = plain_table(["name", "task", "rows", "MB", "licence", "get it"], rows)
    table.padding = (0, 1, 0, 0)
    for column, width in zip(table.columns, (None, 15, 15, None, 14, None), strict=True):
        column.no_wrap, column.max_width = width is None, width
    SafeConsole().print(table)
    echo(
        "\nrows: train / dev / test as published, or all. Of one: rss-rl data list NAME\n"
        "fetch: rss-rl data fetch NAME. by hand: its page is in rss-rl data list NAME\n"
        "your own: rss-rl data prepare FILE --text COLUMN --label COLUMN --out DIR"
    )


def _print_summary(prepared: Prepared) -> None:
    _print_counts(SafeConsole(), prepared.manifest)
    for line in (*_about_texts(prepared.manifest), *_about_vectors(prepared)):
        echo(line)
    for states in stored_states(prepared.folder):
        echo(f"states of {states.encoding}: {states.size} numbers per token")


def _print_counts(console: Console, manifest: Manifest) -> None:
    echo(f"{manifest.name}: {manifest.labels.described}")
    header = ("split", "rows", "tokens per text", "longest", "bad rows", "dropped")
    shown = plain_table(header)
    for name, info in manifest.splits.items():
        means = ", ".join(f"{tokens / info.rows:.1f}" for tokens in info.tokens)
        longest = ", ".join(map(str, info.longest))
        bad, dropped = str(info.bad_rows), str(info.dropped_rows)
        shown.add_row(name, f"{info.rows:,}", means, longest, bad, dropped)
    console.print(shown)


def _about_texts(manifest: Manifest) -> Iterator[str]:
    """Lines on labels that look like several, texts that were cut, and those of two splits."""
    if joined := joined_labels(manifest.labels.names):
        yield joined
    for split, info in manifest.splits.items():
        if info.in_train:
            share = info.in_train / info.rows
            yield f"{split}: {info.in_train:,} rows ({share:.1%}) have a text that is in train, too"
        if info.cut_rows:
            have = "1 row has" if info.cut_rows == 1 else f"{info.cut_rows:,} rows have"
            yield f"{split}: {have} a text of more than {manifest.max_words:,} words: cut"


def _about_vectors(prepared: Prepared) -> Iterator[str]:
    words, vectors = prepared.manifest.vocabulary, prepared.manifest.vectors
    yield (
        f"{words.size:,} words, the vectors of {words.trainable:,} are fine-tuned; "
        f"{vectors.dim} dimensions"
        + ("" if vectors.files else ", all random")
        + (f", but for {vectors.label_weights} label weights" if vectors.label_weights else "")
    )
    for file, width, share in zip(vectors.files, vectors.widths, vectors.coverage, strict=True):
        covered = f"{share.words:.1%} of the words, {share.tokens:.1%} of the running text"
        yield f"  {file.name} ({width}): has {covered}"
    if vectors.missing:
        yield f"  without a vector: {' '.join(vectors.missing[:10])}"


def example_line(split: Split, row: int) -> str:
    """Id, label and texts of a row."""
    batch, words = split.batch([row]), split.words(row)
    marks = None if batch.marks is None else batch.marks[0]
    label = split.labels.shown(float(batch.labels[0]), words[0], marks)
    return f"{split.example_id(row)}  {label}: {' | '.join(map(' '.join, words))}"

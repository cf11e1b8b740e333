"""`rss-rl data`: list the known datasets, fetch and prepare one, show a prepared one."""

from __future__ import annotations

__all__ = ["app"]

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from rss_rl.api.terminal import SafeConsole
from rss_rl.cli import data_catalogue
from rss_rl.cli import data_options as options
from rss_rl.cli.data_preview import example_line, predicted
from rss_rl.data.batching import padding_share, plain_batches
from rss_rl.data.manifest import Manifest
from rss_rl.data.prepare import SHARD_MB
from rss_rl.data.staging import Progress as Report
from rss_rl.data.store import Prepared, open_prepared
from rss_rl.errors import DataError

app = typer.Typer(name="data", rich_markup_mode="markdown")
_REPORT_BATCH = 64
_MANY_WORDS, _TIMES_THE_MEAN = 500, 10
"""A text that has both so many words and so many times the mean is worth telling."""
_MEASURED_ROWS = 1 << 16
"""Padding is measured on the first rows: more of them say little more and cost a pass."""


@app.command(epilog=options.PREPARE_EPILOG)
def prepare(
    what: options.What,
    out: options.Out,
    from_: options.From = None,
    vectors: options.Vectors = None,
    dim: options.Dim = 100,
    text: options.TextColumn = None,
    text_b: options.TextColumnB = None,
    label: options.LabelColumn = None,
    id_: options.IdColumn = None,
    rationale: options.RationaleColumn = None,
    rationale_b: options.RationaleColumnB = None,
    task: options.Task = options.TaskKind.classes,
    low: options.Low = None,
    high: options.High = None,
    dev: options.Dev = None,
    test: options.Test = None,
    split: options.Shares = "0.8/0.1/0.1",
    split_seed: options.SplitSeed = 0,
    option: options.SourceOption = None,
    lower: options.Lower = True,
    seed: options.Seed = 0,
    shard_mb: options.ShardMb = SHARD_MB,
    max_words: options.MaxWords = None,
    too_long: options.WhatOfLong = None,
    skip_bad_rows: options.SkipBadRows = False,
    force: options.Force = False,
    json_: options.Json = False,
) -> None:
    """Turn a dataset into files that training reads: tokens, vocabulary, vectors, counts.

    Give a name that `rss-rl data list` shows, or one or more .csv, .tsv, .jsonl or .parquet
    files of your own, for which --text and --label name the columns.
    """
    from rss_rl.api.preparing import prepare as prepare_data

    if too_long is not None and max_words is None:
        raise DataError("--too-long is for --max-words", remedy="Give --max-words N too")
    start = time.monotonic()

    shown = ExitStack()

    def show_it(found: Prepared) -> None:
        shown.close()  # the live lines end before the summary is printed
        _print_summary(found, out, json_, seconds=time.monotonic() - start)

    columns = {"text": text, "text_b": text_b, "label": label, "id": id_, "rationale": rationale}
    labels = {"task": task.value, "low": low, "high": high, "rationale_b": rationale_b}
    splits = {"dev": dev, "test": test, "split": split, "split_seed": split_seed}
    source = {"folder": from_, "options": option or [], "seed": seed}
    words = {"vectors": vectors or [], "dim": dim, "lower": lower}
    long = {"max_words": max_words, "too_long": (too_long or options.TooLong.cut).value}
    rows = {"skip_bad_rows": skip_bad_rows, "shard_mb": shard_mb, "force": force}
    given: dict[str, Any] = {**columns, **labels, **splits, **source, **words, **long, **rows}
    with shown:
        report = shown.enter_context(_progress(quiet=json_))
        prepare_data(what, out=out, **given, progress=report, seen=show_it)


app.command("list", epilog=data_catalogue.LIST_EPILOG)(data_catalogue.list_)
app.command(epilog=data_catalogue.FETCH_EPILOG)(data_catalogue.fetch)


@app.command()
def show(
    prepared: options.PreparedPlace, examples: options.Examples = 0, json_: options.Json = False
) -> None:
    """Show what a prepared directory or URI holds."""
    opened = open_prepared(prepared)
    opened.check()
    _print_summary(opened, prepared, json_, examples)


@contextmanager
def _progress(quiet: bool) -> Iterator[Report]:
    """A live line for each thing being done, on standard error."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.completed:,.0f}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=SafeConsole(stderr=True), disable=quiet) as bar:
        tasks: dict[str, Any] = {}

        def report(what: str, done: int, end: int | None) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=None)
            bar.update(tasks[what], completed=done, total=end)

        yield report


def _print_summary(
    prepared: Prepared,
    place: str,
    as_json: bool,
    examples: int = 0,
    seconds: float | None = None,
) -> None:
    padding = {}
    for name in prepared.manifest.splits:
        split = prepared.split(name)
        lengths = split.lengths(range(min(len(split), _MEASURED_ROWS)))
        padding[name] = padding_share(lengths, plain_batches(lengths, _REPORT_BATCH))
    if as_json:
        report = prepared.manifest.model_dump(mode="json")
        report |= {"directory": place, "padding_at_batch_64": padding}
        report |= {} if seconds is None else {"seconds": round(seconds, 2)}
        typer.echo(json.dumps(report, indent=2, ensure_ascii=False))
        return
    console = SafeConsole()
    _print_counts(console, prepared, padding)
    for line in _about_long_texts(prepared.manifest):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    _print_vectors(console, prepared)
    for row in range(min(examples, len(prepared.split("train")))):
        shown = example_line(prepared.split("train"), row)
        console.print(shown, soft_wrap=True, highlight=False, markup=False)
    if seconds is not None:
        console.print(f"Written to {place} in {seconds:.1f} s.", soft_wrap=True, highlight=False)


def _print_counts(console: Console, prepared: Prepared, padding: dict[str, float]) -> None:
    manifest = prepared.manifest
    console.print(
        f"[bold]{escape(manifest.name)}[/bold]: {escape(predicted(manifest.labels))}",
        soft_wrap=True,
        highlight=False,
    )
    shown = Table(
        "split", "rows", "tokens a text", "longest", "padding at 64", "bad rows", "dropped"
    )
    for name, info in manifest.splits.items():
        means = ", ".join(f"{tokens / info.rows:.1f}" for tokens in info.tokens)
        longest = ", ".join(str(tokens) for tokens in info.longest)
        shown.add_row(
            name,
            f"{info.rows:,}",
            means,
            longest,
            f"{padding[name]:.1%}",
            str(info.bad_rows),
            str(info.dropped_rows),
        )
    console.print(shown)


def _about_long_texts(manifest: Manifest) -> Iterator[str]:
    """What was cut or left out, and which texts make batches much larger than others do."""
    for split, info in manifest.splits.items():
        for count, what in ((info.cut_rows, "cut"), (info.long_rows, "left out")):
            if count:
                have = "1 row has" if count == 1 else f"{count:,} rows have"
                yield f"{split}: {have} a text of more than {manifest.max_words:,} words: {what}"
        mean = sum(info.tokens) / info.rows
        most = max(info.longest)
        if most < _MANY_WORDS or most < _TIMES_THE_MEAN * mean:
            continue
        texts = ", ".join(f"{text.words:,} words ({text.id[:80]})" for text in info.longest_texts)
        yield (
            f"{split}: the longest texts have {texts}. A batch of {_REPORT_BATCH} with it is padded"
            f" to {_REPORT_BATCH * most:,} tokens, {most / mean:,.0f} times those of mean texts:"
            " --max-words N cuts such texts or leaves them out"
        )


def _print_vectors(console: Console, prepared: Prepared) -> None:
    words, vectors = prepared.manifest.vocabulary, prepared.manifest.vectors
    console.print(
        f"{words.size:,} words, the vectors of {words.trainable:,} are fine-tuned; "
        f"{vectors.dim} numbers a vector" + ("" if vectors.files else ", all random"),
        soft_wrap=True,
        highlight=False,
    )
    for file, width, share in zip(vectors.files, vectors.widths, vectors.coverage, strict=True):
        console.print(
            f"  {file.name} ({width}): has {share.words:.1%} of the words, "
            f"{share.tokens:.1%} of the running text",
            soft_wrap=True,
            highlight=False,
            markup=False,
        )
    if vectors.missing:
        console.print(
            f"  without a vector: {' '.join(vectors.missing[:10])}",
            soft_wrap=True,
            highlight=False,
            markup=False,
        )

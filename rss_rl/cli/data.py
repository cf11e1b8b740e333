"""`rss-rl data`: list the known datasets, fetch and prepare one, show a prepared one."""

from __future__ import annotations

__all__ = ["app"]

import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
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
from rss_rl.data.checks import LARGEST_SCORE
from rss_rl.data.manifest import Manifest
from rss_rl.data.prepare import SHARD_MB
from rss_rl.data.prepare import prepare as prepare_source
from rss_rl.data.sources import SOURCES, Source, SourceRequest, named_source
from rss_rl.data.staging import Progress as Report
from rss_rl.data.store import Prepared, open_prepared
from rss_rl.data.tables import Columns, table
from rss_rl.data.upload import local_target, upload
from rss_rl.errors import DataError
from rss_rl.storage import is_uri
from rss_rl.types import LabelSpec

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
    own: dict[str, Any] = {
        "--text": text,
        "--text-b": text_b,
        "--label": label,
        "--id": id_,
        "--dev": dev,
    }
    own |= {"--rationale": rationale, "--rationale-b": rationale_b, "--test": test}
    own |= {"--task": task != options.TaskKind.classes, "--low": low, "--high": high}
    if any(_is_file(item) for item in what):
        _refuse({"--from": from_, "--option": option}, "known datasets")
        columns = _columns((text, text_b), label, id_, (rationale, rationale_b))
        spec, train = _label_spec(task, low, high), [Path(item) for item in what]
        shares = _shares(split)
        source: Source = table(
            train, columns, spec, dev=dev, test=test, shares=shares, seed=split_seed
        )
    else:
        _refuse(own, "files of your own")
        source = _named(what, SourceRequest(from_, seed, _settings(option or [])))
    words = {"vectors": vectors or [], "dim": dim, "lower": lower, "seed": seed}
    if too_long is not None and max_words is None:
        raise DataError("--too-long is for --max-words", remedy="Give --max-words N too")
    long = {"max_words": max_words, "too_long": (too_long or options.TooLong.cut).value}
    rows = {"skip_bad_rows": skip_bad_rows, "shard_mb": shard_mb}
    _run(source, out, json_, force, **words, **long, **rows)


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


def _run(source: Source, out: str, as_json: bool, force: bool, **settings: Any) -> None:
    start = time.monotonic()
    with local_target(out, force) as folder:
        with _progress(quiet=as_json) as report:
            prepare_source(source, folder, force=force, progress=report, **settings)
            if is_uri(out):
                upload(folder, out, report)
        seconds = time.monotonic() - start
        _print_summary(open_prepared(folder), out, as_json, seconds=seconds)


def _refuse(given: dict[str, Any], what: str) -> None:
    """Options that would be passed over."""
    for name, value in given.items():
        if value is not None and value is not False and value != []:
            raise DataError(f"{name} is for {what}", remedy="Leave it out")


def _is_file(item: str) -> bool:
    return item not in SOURCES and (Path(item).suffix != "" or Path(item).exists())


def _named(what: list[str], request: SourceRequest) -> Source:
    if len(what) > 1:
        raise DataError(f"'{what[1]}' is one name too many", remedy="Prepare one dataset at a time")
    return named_source(what[0], request)


def _columns(
    texts: tuple[str | None, ...],
    label: str | None,
    id_: str | None,
    rationale: tuple[str | None, ...],
) -> Columns:
    named = tuple(name for name in texts if name)
    if not named or not label:
        raise DataError(
            "which columns hold the text and the label is not said",
            remedy="Name them: --text COLUMN --label COLUMN, and --text-b COLUMN for pairs",
        )
    return Columns(named, label, id_, tuple(name for name in rationale if name))


def _label_spec(task: options.TaskKind, low: float | None, high: float | None) -> LabelSpec | None:
    if task is options.TaskKind.classes:
        if low is not None or high is not None:
            raise DataError("--low and --high are for scores", remedy="Add --task score")
        return None
    if low is None and high is None:
        return LabelSpec("score", low=-math.inf, high=math.inf)
    if low is None or high is None or not -math.inf < low < high < math.inf:
        raise DataError("a score lies between two numbers", remedy="Give --low and --high")
    if max(abs(low), abs(high)) > LARGEST_SCORE:
        raise DataError("--low or --high does not fit 32 bits", remedy="Divide the scores")
    return LabelSpec("score", low=low, high=high)


def _shares(text: str) -> list[float]:
    try:
        return [float(share) for share in text.split("/")]
    except ValueError as error:
        raise DataError(
            f"--split {text} is no list of shares", remedy="Write it as 0.8/0.1/0.1"
        ) from error


def _settings(given: list[str]) -> dict[str, str]:
    settings = {}
    for item in given:
        name, sign, value = item.partition("=")
        if not sign:
            raise DataError(f"--option {item} has no value", remedy="Write it as NAME=VALUE")
        settings[name] = value
    return settings


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

"""`rss-rl data prepare` and `rss-rl data show`; see `data_catalogue` for `list` and `fetch`."""

from __future__ import annotations

__all__ = ["app", "example_line", "gold", "predicted"]

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from rss_rl.api.terminal import SafeConsole, say
from rss_rl.cli import data_catalogue, options
from rss_rl.cli.options import argument, option, table_option
from rss_rl.data.length_buckets import padding_share, plain_batches
from rss_rl.data.manifest import Manifest
from rss_rl.data.prepare import SHARD_MB
from rss_rl.data.states import stored_states
from rss_rl.data.store import Prepared, Split, open_prepared
from rss_rl.errors import DataError
from rss_rl.types import LabelSpec

app = typer.Typer(name="data", rich_markup_mode="markdown")
_REPORT_BATCH = 64
_MANY_WORDS, _TIMES_THE_MEAN = 500, 10
"""A text is reported as long if it reaches both this many words and this multiple of the mean."""
_MEASURED_ROWS = 1 << 16
"""Padding is measured on this many rows at most, since all would cost a pass over the data."""
_COUNTS = (
    SpinnerColumn(),
    TextColumn("{task.description}"),
    TextColumn("{task.completed:,.0f}"),
    TimeElapsedColumn(),
)

PREPARE_EPILOG = """
Examples:

`rss-rl data prepare sick-relatedness --from SICK --vectors glove.6B.100d.txt.gz --out data/sick`

`rss-rl data prepare snli --from snli_1.0 --vectors glove.6B.zip:glove.6B.300d.txt --out data/snli`

`rss-rl data prepare reviews.csv --text review --label stars --out data/reviews`

`rss-rl data prepare pairs.tsv --text a --text-b b --label score --task score --out data/pairs`

`rss-rl data prepare reviews.csv --text review --label stars --out s3://bucket/reviews`

Data read from a URI are cached in the directory RSS_RL_CACHE (~/.cache/rss-rl).
"""


ENCODE_EPILOG = """
Example:

`rss-rl data encode prepared/reviews --pretrained MiniLM_FOLDER`

`rss-rl train movies data=prepared/reviews policy.reads=contextual policy.pretrained=MiniLM_FOLDER`
"""


class StateType(StrEnum):
    """Number type of encoder states."""

    float16 = "float16"
    float32 = "float32"


class StatePrecision(StrEnum):
    """Precision of an encoder's matrix products."""

    float32 = "float32"
    bfloat16 = "bfloat16"


class StateWindow(StrEnum):
    """What an encoder reads at once."""

    text = "text"
    sentence = "sentence"


class TooLong(StrEnum):
    """What to do with rows whose text is too long."""

    cut = "cut"
    leave_out = "leave-out"


@app.command(epilog=PREPARE_EPILOG)
def prepare(
    what: Annotated[list[str], argument("NAME|FILE...", "A known dataset, or training file(s).")],
    out: Annotated[
        str,
        option(
            "--out DIR|URI",
            "Directory to make, or a URI such as s3://bucket/name: the data are prepared here "
            "and then uploaded.",
        ),
    ],
    from_: Annotated[
        Path | None, option("--from FOLDER", "Folder with the files of a known dataset.")
    ] = None,
    vectors: options.Vectors = None,
    dim: Annotated[
        int, option("--dim", "Width of random vectors.", min=1, rich_help_panel=options.VECTORS)
    ] = 100,
    text: Annotated[
        str | None,
        table_option(
            "--text COLUMN", "Column with the text, or with a list of words (JSON lines, Parquet)."
        ),
    ] = None,
    text_b: Annotated[str | None, table_option("--text-b COLUMN", "Second text of a pair.")] = None,
    label: options.LabelColumn = None,
    id_: Annotated[
        str | None,
        table_option("--id COLUMN", "Column that identifies a row. Default: file name and row."),
    ] = None,
    rationale: Annotated[
        str | None,
        table_option(
            "--rationale COLUMN",
            "Column with a list of 0 and 1, one for each word of --text: 1 for the words that "
            "matter.",
        ),
    ] = None,
    rationale_b: Annotated[
        str | None, table_option("--rationale-b COLUMN", "The same for --text-b.")
    ] = None,
    task: options.Task = options.TaskKind.classes,
    low: options.Low = None,
    high: options.High = None,
    dev: options.DevRows = None,
    test: options.TestRows = None,
    split: Annotated[
        str, table_option("--split A/B/C", "Shares of train, dev and test in a random split.")
    ] = "0.8/0.1/0.1",
    split_seed: Annotated[int, table_option("--split-seed", "Seed of the random split.")] = 0,
    option: Annotated[
        list[str] | None, option("--option NAME=VALUE", "A setting of a known dataset; repeatable.")
    ] = None,
    lower: Annotated[
        bool,
        option(
            "--lower/--no-lower",
            "Convert text to lower case. Lists of words are always kept as they are.",
            rich_help_panel=options.VECTORS,
        ),
    ] = True,
    seed: Annotated[
        int,
        option(
            "--seed", "Seed of random vectors, generated datasets and random splits of known ones."
        ),
    ] = 0,
    shard_mb: Annotated[
        int,
        option("--shard-mb", "Largest size of a file of the prepared data, in megabytes.", min=1),
    ] = SHARD_MB,
    max_words: Annotated[
        int | None,
        option(
            "--max-words",
            "Longest text, in words. Preparing reports what long texts cost.",
            min=1,
            rich_help_panel=options.BAD_ROWS,
        ),
    ] = None,
    too_long: Annotated[
        TooLong | None,
        option(
            "--too-long",
            "Whether texts over --max-words are cut (the default) or their rows left out. "
            "Both are counted.",
            rich_help_panel=options.BAD_ROWS,
        ),
    ] = None,
    skip_bad_rows: options.SkipBadRows = False,
    force: Annotated[
        bool, option("--force", "Replace existing prepared data.", rich_help_panel=options.BAD_ROWS)
    ] = False,
    json_: options.Json = False,
) -> None:
    """Turn a dataset into the files that training reads: tokens, vocabulary, vectors, counts.

    Give a name that `rss-rl data list` shows, or one or more .csv, .tsv, .jsonl or .parquet
    files of your own, for which --text and --label name the columns.
    """
    from rss_rl.api.preparing import prepare as prepare_data

    if too_long is not None and max_words is None:
        raise DataError("--too-long needs --max-words", remedy="Give --max-words N too")
    start = time.monotonic()
    columns = {"text": text, "text_b": text_b, "label": label, "id": id_, "rationale": rationale}
    labels = {"task": task.value, "low": low, "high": high, "rationale_b": rationale_b}
    splits = {"dev": dev, "test": test, "split": split, "split_seed": split_seed}
    source = {"folder": from_, "options": option or [], "seed": seed}
    words = {"vectors": vectors or [], "dim": dim, "lower": lower}
    long = {"max_words": max_words, "too_long": (too_long or TooLong.cut).value}
    rows = {"skip_bad_rows": skip_bad_rows, "shard_mb": shard_mb, "force": force}
    given: dict[str, Any] = {**columns, **labels, **splits, **source, **words, **long, **rows}
    with ExitStack() as progress:
        report = progress.enter_context(data_catalogue.progress_lines(_COUNTS, quiet=json_))

        def summarise(found: Prepared) -> None:
            progress.close()  # the live lines end before the summary is printed
            _print_summary(found, out, json_, seconds=time.monotonic() - start)

        prepare_data(what, out=out, **given, progress=report, seen=summarise)


app.command("list", epilog=data_catalogue.LIST_EPILOG)(data_catalogue.list_)
app.command(epilog=data_catalogue.FETCH_EPILOG)(data_catalogue.fetch)


@app.command(epilog=ENCODE_EPILOG)
def encode(
    data: Annotated[Path, argument("DATA", "A prepared directory.")],
    pretrained: Annotated[
        str,
        option(
            "--pretrained FOLDER|NAME",
            "Folder of a transformer with its tokenizer, or its name on the Hugging Face hub.",
        ),
    ],
    layers: Annotated[
        int | None,
        option("--layers N", "Compute the first N layers alone: policy.layers=N.", min=1),
    ] = None,
    window: Annotated[
        StateWindow, option("--window", "What it reads at once: policy.window.")
    ] = StateWindow.text,
    dtype: Annotated[
        StateType, option("--dtype", "Type of the numbers that are written.")
    ] = StateType.float16,
    precision: Annotated[
        StatePrecision,
        option(
            "--precision", "Of matrix products; bfloat16 is faster on processors that support it."
        ),
    ] = StatePrecision.float32,
    device: options.ComputeOn = "cpu",
    force: Annotated[bool, option("--force", "Replace states of the same encoder.")] = False,
    json_: options.Json = False,
) -> None:
    """Store a pretrained encoder's state of each word, in its context, with prepared data.

    A policy with policy.reads=contextual reads these states. If the command is stopped, repeat it
    to resume.
    """
    from rss_rl.api.encoding import encode as encode_data

    start = time.monotonic()
    with data_catalogue.progress_lines(_COUNTS, quiet=json_) as report:

        def sized(size: int) -> None:
            if not json_:
                say(SafeConsole(stderr=True), f"The states take {size / 1e9:,.2f} GB in {data}.")

        info = encode_data(
            data,
            pretrained,
            layers=layers,
            window=window.value,
            dtype=dtype.value,
            precision=precision.value,
            device=device,
            force=force,
            sized=sized,
            progress=report,
        )
    if json_:
        typer.echo(info.model_dump_json(indent=2))
    else:
        seconds = time.monotonic() - start
        say(SafeConsole(), f"Written to {data} in {seconds:.1f} s: {info.size} numbers per word.")


@app.command(epilog="Example: `rss-rl data show data/reviews --examples 3`")
def show(
    prepared: Annotated[str, argument("PREPARED", "A prepared directory, or its URI.")],
    examples: Annotated[int, option("--examples", "Also show this many training rows.", min=0)] = 0,
    json_: options.Json = False,
) -> None:
    """Show what a prepared directory or URI holds."""
    opened = open_prepared(prepared)
    opened.check()
    _print_summary(opened, prepared, json_, examples)


def _print_summary(
    prepared: Prepared,
    where: str,
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
        report |= {"directory": where, "padding_at_batch_64": padding}
        report |= {} if seconds is None else {"seconds": round(seconds, 2)}
        typer.echo(json.dumps(report, indent=2, ensure_ascii=False))
        return
    console = SafeConsole()
    _print_counts(console, prepared, padding)
    for line in _about_long_texts(prepared.manifest):
        say(console, line)
    _print_vectors(console, prepared)
    for states in stored_states(prepared.folder):
        numbers = f"{states.size} numbers per token, {states.dtype}"
        say(console, f"states of {states.encoding}: {numbers}")
    for row in range(min(examples, len(prepared.split("train")))):
        say(console, example_line(prepared.split("train"), row))
    if seconds is not None:
        say(console, f"Written to {where} in {seconds:.1f} s.")


def _print_counts(console: Console, prepared: Prepared, padding: dict[str, float]) -> None:
    manifest = prepared.manifest
    say(console, f"{manifest.name}: {predicted(manifest.labels)}")
    header = ("split", "rows", "tokens per text", "longest", "padding at 64", "bad rows", "dropped")
    shown = Table(*header)
    for name, info in manifest.splits.items():
        means = ", ".join(f"{tokens / info.rows:.1f}" for tokens in info.tokens)
        longest = ", ".join(map(str, info.longest))
        bad, dropped = str(info.bad_rows), str(info.dropped_rows)
        shown.add_row(name, f"{info.rows:,}", means, longest, f"{padding[name]:.1%}", bad, dropped)
    console.print(shown)


def _about_long_texts(manifest: Manifest) -> Iterator[str]:
    """Lines on texts that were cut or left out, and on texts that make batches much larger."""
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
            f"{split}: the longest texts have {texts}. A batch of {_REPORT_BATCH} with one of them"
            f" is padded to {_REPORT_BATCH * most:,} tokens, {most / mean:,.0f} times those of mean"
            " texts: --max-words N cuts such texts or leaves them out"
        )


def _print_vectors(console: Console, prepared: Prepared) -> None:
    words, vectors = prepared.manifest.vocabulary, prepared.manifest.vectors
    say(
        console,
        f"{words.size:,} words, the vectors of {words.trainable:,} are fine-tuned; "
        f"{vectors.dim} dimensions" + ("" if vectors.files else ", all random"),
    )
    for file, width, share in zip(vectors.files, vectors.widths, vectors.coverage, strict=True):
        covered = f"{share.words:.1%} of the words, {share.tokens:.1%} of the running text"
        say(console, f"  {file.name} ({width}): has {covered}")
    if vectors.missing:
        say(console, f"  without a vector: {' '.join(vectors.missing[:10])}")


def predicted(labels: LabelSpec) -> str:
    """A description of what is predicted."""
    if labels.kind == "score":
        return f"score {labels.low:g} to {labels.high:g}"
    if labels.kind == "sentence":
        return "which sentence answers the question"
    if labels.kind == "candidate":
        return "which candidate of the passage fills the blank"
    return ", ".join(labels.names)


def gold(split: Split, row: int) -> str:
    """Label of a row: the class, the score, or the words of the right sentence or candidate."""
    batch = split.batch([row])
    label = batch.labels[0]
    if split.labels.kind == "score":
        return f"{label:g}"
    if batch.marks is None:
        return split.labels.names[int(label)]
    marked = np.flatnonzero(batch.marks[0] == label)
    # A candidate can occur several times; show it once.
    shown = marked[:1] if split.labels.kind == "candidate" else marked
    words = split.words(row)[0]
    return f"{label} ({' '.join(words[index] for index in shown)})"


def example_line(split: Split, row: int) -> str:
    """Id, label and texts of a row."""
    texts = " | ".join(" ".join(words) for words in split.words(row))
    return f"{split.example_id(row)}  {gold(split, row)}: {texts}"

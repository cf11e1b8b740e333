"""Arguments and options of `rss-rl data`, with what their help says."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

PREPARE_EPILOG = """
Examples:

`rss-rl data prepare sick-relatedness --from SICK --vectors glove.6B.100d.txt.gz --out data/sick`

`rss-rl data prepare snli --from snli_1.0 --vectors glove.6B.zip:glove.6B.300d.txt --out data/snli`

`rss-rl data prepare reviews.csv --text review --label stars --out data/reviews`

`rss-rl data prepare pairs.tsv --text a --text-b b --label score --task score --out data/pairs`

`rss-rl data prepare reviews.csv --text review --label stars --out s3://bucket/reviews`

What is read from a URI is kept in the directory RSS_RL_CACHE (~/.cache/rss-rl), up to
RSS_RL_CACHE_GB (20) gigabytes.
"""


class TooLong(StrEnum):
    """What becomes of a row with a text that has too many words."""

    cut = "cut"
    leave_out = "leave-out"


class TaskKind(StrEnum):
    """What the label column holds."""

    classes = "classes"
    score = "score"


_TABLE, _VECTORS, _ROWS = "Your own files", "Words and vectors", "Bad rows and output"

What = Annotated[
    list[str], typer.Argument(metavar="NAME|FILE...", help="A known dataset, or training file(s).")
]
PreparedPlace = Annotated[
    str, typer.Argument(metavar="PREPARED", help="A prepared directory, or its URI.")
]
Examples = Annotated[int, typer.Option("--examples", min=0, help="Show so many training rows too.")]
Out = Annotated[
    str,
    typer.Option(
        "--out",
        metavar="DIR|URI",
        help="Directory to make, or a URI such as s3://bucket/name: the data are prepared here and "
        "then uploaded.",
    ),
]
ShardMb = Annotated[
    int,
    typer.Option("--shard-mb", min=1, help="Megabytes of a file of the prepared data, at most."),
]
From = Annotated[
    Path | None, typer.Option("--from", metavar="FOLDER", help="Where a known dataset's files lie.")
]
SourceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option", metavar="NAME=VALUE", help="A setting of a known dataset; repeatable."
    ),
]
Seed = Annotated[
    int, typer.Option("--seed", help="Of random vectors, made datasets and cut splits.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

Vectors = Annotated[
    list[Path] | None,
    typer.Option(
        "--vectors",
        metavar="FILE",
        help="GloVe text (plain, .gz, .zip or ARCHIVE.zip:FILE) or word2vec binary (.bin). "
        "Repeat it to put several side by side. Without, all vectors are random.",
        rich_help_panel=_VECTORS,
    ),
]
Dim = Annotated[
    int,
    typer.Option("--dim", min=1, help="Width of random vectors.", rich_help_panel=_VECTORS),
]
Lower = Annotated[
    bool,
    typer.Option(
        "--lower/--no-lower",
        help="Do not tell 'The' from 'the'. Lists of words are always kept as they are.",
        rich_help_panel=_VECTORS,
    ),
]

TextColumn = Annotated[
    str | None,
    typer.Option(
        "--text",
        metavar="COLUMN",
        help="Column with the text, or with a list of words (JSON lines, Parquet).",
        rich_help_panel=_TABLE,
    ),
]
TextColumnB = Annotated[
    str | None,
    typer.Option(
        "--text-b", metavar="COLUMN", help="Second text of a pair.", rich_help_panel=_TABLE
    ),
]
LabelColumn = Annotated[
    str | None,
    typer.Option(
        "--label", metavar="COLUMN", help="Column with the label.", rich_help_panel=_TABLE
    ),
]
IdColumn = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="COLUMN",
        help="Column that identifies a row. Default: file name and row.",
        rich_help_panel=_TABLE,
    ),
]
RationaleColumn = Annotated[
    str | None,
    typer.Option(
        "--rationale",
        metavar="COLUMN",
        help="Column with a list of 0 and 1, one for each word of --text: the words that matter.",
        rich_help_panel=_TABLE,
    ),
]
RationaleColumnB = Annotated[
    str | None,
    typer.Option(
        "--rationale-b", metavar="COLUMN", help="The same for --text-b.", rich_help_panel=_TABLE
    ),
]
Task = Annotated[
    TaskKind,
    typer.Option(
        "--task", help="Whether labels name classes or are numbers.", rich_help_panel=_TABLE
    ),
]
Low = Annotated[
    float | None,
    typer.Option(
        "--low",
        help="Lowest possible score. Default: of the training rows.",
        rich_help_panel=_TABLE,
    ),
]
High = Annotated[
    float | None,
    typer.Option("--high", help="Highest possible score.", rich_help_panel=_TABLE),
]
Dev = Annotated[
    Path | None,
    typer.Option(
        "--dev",
        metavar="FILE",
        help="Development split. Default: cut from the training rows.",
        rich_help_panel=_TABLE,
    ),
]
Test = Annotated[
    Path | None,
    typer.Option(
        "--test",
        metavar="FILE",
        help="Test split. Default: cut from the training rows.",
        rich_help_panel=_TABLE,
    ),
]
Shares = Annotated[
    str,
    typer.Option(
        "--split",
        metavar="A/B/C",
        help="Shares of train, dev and test when they are cut.",
        rich_help_panel=_TABLE,
    ),
]
SplitSeed = Annotated[
    int, typer.Option("--split-seed", help="Seed of the cut.", rich_help_panel=_TABLE)
]

SkipBadRows = Annotated[
    bool,
    typer.Option(
        "--skip-bad-rows",
        help="Leave rows that cannot be used out, count them and list them in rejects.jsonl. "
        "Without, the first one stops.",
        rich_help_panel=_ROWS,
    ),
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Replace a prepared dataset.", rich_help_panel=_ROWS),
]
MaxWords = Annotated[
    int | None,
    typer.Option(
        "--max-words",
        min=1,
        help="Words of a text, at most; what a longer one costs is told when it is prepared.",
        rich_help_panel=_ROWS,
    ),
]
WhatOfLong = Annotated[
    TooLong | None,
    typer.Option(
        "--too-long",
        help="Whether texts with more words than --max-words are cut (the default) or their rows "
        "left out. Both are counted.",
        rich_help_panel=_ROWS,
    ),
]

"""`rss-rl fit`: from a table to a trained model in one command."""

from __future__ import annotations

__all__ = ["EPILOG", "fit"]

from pathlib import Path
from typing import Annotated, Any

import typer

from rss_rl.cli import options
from rss_rl.cli.options import console, end_run, write_page

EPILOG = """
Examples:

`rss-rl fit reviews.csv --text review --label stars --keep 0.2`

`rss-rl fit pairs.tsv --text a --text-b b --label score --task score --time 5m --out runs/pairs`

It prepares the table, trains `configs/own.yaml` (long texts: `own_long`) on it, and writes a report
to open in a browser. What it chooses follows from the number of rows, the labels and the length of
the texts alone; it prints each choice, and KEY=VALUE settings behind the file override them. The
same table is prepared once. For data that are prepared already, and for all settings, see
`rss-rl data prepare` and `rss-rl train`.
"""


def fit(
    data: Annotated[
        Path, typer.Argument(metavar="FILE", help="Training rows: .csv, .tsv, .jsonl or .parquet.")
    ],
    text: Annotated[str, typer.Option("--text", metavar="COLUMN", help="Column of the text.")],
    label: options.LabelColumn,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Settings that differ from those chosen."),
    ] = None,
    text_b: options.TextB = None,
    keep: Annotated[
        float | None,
        typer.Option(
            "--keep",
            metavar="SHARE",
            help="Share of the words to keep. Default: 0.4, of texts over 100 words 0.2.",
        ),
    ] = None,
    time: options.Time = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Directory of the run. Default: runs/FILE's name."
        ),
    ] = None,
    dev: options.DevRows = None,
    test: options.TestRows = None,
    task: Annotated[
        options.TaskKind | None,
        options.table_option(
            "--task", "Whether labels name classes or are numbers. Default: as they look.", None
        ),
    ] = None,
    low: options.Low = None,
    high: options.High = None,
    vectors: options.Vectors = None,
    skip_bad_rows: options.SkipBadRows = False,
    overwrite: options.Overwrite = False,
    json_: options.Json = False,
) -> None:
    """Prepare a table and train on it: a classifier, and a policy that picks the words it reads."""
    from rss_rl.api.fitting import fit as fit_rows

    shown = console(stderr=json_)
    how: dict[str, Any] = {
        "task": task and task.value,
        "low": low,
        "high": high,
        "vectors": vectors or None,
        "skip_bad_rows": skip_bad_rows,
    }
    run = fit_rows(
        data,
        text=text,
        label=label or "",
        text_b=text_b,
        keep=keep,
        dev=dev,
        test=test,
        time=time,
        out=out,
        overrides=overrides or [],
        prepared=how,
        overwrite=overwrite,
        console=shown,
    )
    end_run(run, shown, as_json=json_)
    if not json_:
        write_page(run, shown)

"""`rss-rl predict`: a whole file of texts through a trained model."""

from __future__ import annotations

__all__ = ["EPILOG", "predict"]

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.status import Status

from rss_rl.api.interruption import Interruption
from rss_rl.api.terminal import say
from rss_rl.cli import options
from rss_rl.cli.options import checkpoint, console, text_columns, trust

if TYPE_CHECKING:
    from rss_rl.inference.scoring import Counts

EPILOG = """
Examples:

`rss-rl predict runs/reviews --input reviews.csv --text review --output scored.parquet`

`rss-rl predict models/sick --input pairs.jsonl --text a --text-b b --output scored.csv`
"""


def predict(
    path: options.ModelPath,
    source: Annotated[
        Path,
        typer.Option("--input", metavar="FILE", help="CSV, TSV, JSON lines or Parquet, also .gz."),
    ],
    target: Annotated[
        Path,
        typer.Option(
            "--output", metavar="FILE", help="The same formats, not .gz; appears when complete."
        ),
    ],
    text: options.TextColumn = None,
    text_b: options.TextB = None,
    skip_bad_rows: Annotated[
        bool,
        typer.Option("--skip-bad-rows", help="Write what is wrong with a row into column `error`."),
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an output that is there; never the input.")
    ] = False,
    which: options.Which = "best",
    trust_plugins: options.TrustPlugins = False,
) -> None:
    """Predict for every row of a file, in constant memory.

    The output has a row for each row read: its number, prediction, probabilities, the share of
    words kept, the words, the numbers of those selected as head or dependent, and the columns of
    the input.
    """
    from rss_rl.inference.model import load_model
    from rss_rl.inference.scoring import check_target, score_file

    check_target(source, target, overwrite=overwrite)
    model = load_model(path, checkpoint(which), trust(trust_plugins))
    out = console(stderr=True)
    with Interruption(_stopping) as interruption, out.status("reading") as status:
        counts = score_file(
            model,
            source,
            target,
            text_columns(text, text_b),
            skip_bad_rows=skip_bad_rows,
            overwrite=overwrite,
            progress=_progress(status),
            stop=interruption.asked,
        )
    if not counts.complete:
        say(out, f"stopped after {counts.rows:,} rows; {target} was not written")
        raise typer.Exit(interruption.exit_code)
    bad = f", {counts.bad:,} of them with an error" if counts.bad else ""
    typer.echo(f"wrote {target}: {counts.rows:,} rows{bad}")


def _stopping() -> None:
    os.write(2, b"\nstopping after this block of rows; once more to stop at once\n")


def _progress(status: Status) -> Callable[[Counts], None]:
    """Shows the rows done, and how many a second."""
    began = time.monotonic()

    def show(counts: Counts) -> None:
        rate = counts.rows / max(time.monotonic() - began, 1e-9)
        status.update(f"{counts.rows:,} rows, {rate:,.0f} a second, {counts.bad:,} bad")

    return show

"""Predict for the rows of files with a trained model."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from cyclopts import Parameter

from rss_rl.api.interruption import Interruption
from rss_rl.api.options import (
    Address,
    Device,
    ModelFolder,
    TextColumn,
    TrustPlugins,
    Which,
)
from rss_rl.api.terminal import SafeConsole, busy, say

_STOPPING = "stopping: incomplete files are not written; Ctrl-C again quits at once"


def predict(
    run: ModelFolder,
    *,
    input: Annotated[str, Parameter(metavar="FILE|FOLDER|URI|-", allow_leading_hyphen=True)],
    output: Annotated[str, Parameter(metavar="FILE|FOLDER|URI")],
    text: TextColumn = None,
    text_b: TextColumn = None,
    share: float | None = None,
    abstain_below: float = 0.0,
    skip_bad_rows: bool = False,
    overwrite: bool = False,
    address: Address = None,
    device: Device = "cpu",
    which: Which = "best",
    trust_plugins: TrustPlugins = False,
) -> None:
    """Predict for every row of a file, or of a folder of files, in constant memory.

    The output has a row for each row of the input: the prediction, the probability of each class,
    the share of words kept, those words, and the columns of the input. For a folder, the output is
    a folder with a file for each file. If the command is stopped or killed, complete Parquet files
    are kept. Give the same command again to continue with the others.

    Args:
        run: Directory of a run or of an export.
        input: CSV, TSV, JSON lines or Parquet, also .gz, or a folder of Parquet files; here or at
            a URI (s3://, gs://, ...). `-` is standard input: a text a line, or JSON lines.
        output: A file of the same formats, not .gz; it appears when complete. Of a folder: a folder
            for the Parquet files.
        text: Column of the text, or of a pair's first. Default: that of the training table.
        text_b: Column of a pair's second text.
        share: Share of each text's words to keep instead: the most probable ones, at least one.
        abstain_below: Least probability of a class to predict it; below, `prediction` is empty.
        skip_bad_rows: Write what is wrong with a row into column `error`.
        overwrite: Replace existing outputs, also those of another model; never the input.
        address: Score the files of a folder on the CPUs of a Ray cluster: 'auto' for the one
            running on this machine, 'local' to start one here. Needs rss-rl on the nodes. Default:
            one file at a time, without Ray.

    Examples:
        `rss-rl predict runs/reviews --input reviews.csv --text review --output scored.parquet`

        `rss-rl predict models/sick --input pairs.jsonl --text a --text-b b --output scored.csv`

        `grep -i refund mails.txt | rss-rl predict runs/mails --input - --output scored.csv`

        `rss-rl predict models/reviews --input s3://bucket/reviews --text review
        --output s3://bucket/scored --address HEAD:6379` gives each file of a folder to the next
        free CPU of a Ray cluster. If it is stopped or killed, repeat the command to continue.

        `rss-rl predict models/reviews --input reviews/ --text review --output scored/
        --address local` uses all CPUs of this machine.
    """
    from rss_rl.components import EVERYTHING, NOTHING
    from rss_rl.inference.artifact import pack_model
    from rss_rl.inference.model import load_model
    from rss_rl.inference.predict import Counts, Scorer, begin

    trusted, out = EVERYTHING if trust_plugins else NOTHING, SafeConsole(stderr=True)
    packed = pack_model(Path(run), which, trusted)
    with _named(input) as location:
        job = begin(
            packed.sha256, location, output, tuple(filter(None, (text, text_b))),
            share=share, abstain_below=abstain_below, skip_bad_rows=skip_bad_rows,
            overwrite=overwrite,
        )  # fmt: skip
        of, done, total, started = len(job.outputs), 0, Counts(0, 0), time.monotonic()
        with (
            suppress(KeyboardInterrupt),
            Interruption(_STOPPING, raises=True) as interruption,
            busy(out, "starting") as tell,
        ):

            def progress(counts: Counts) -> None:
                """Show the counts of the file in work on top of the completed ones."""
                rows = total.rows + counts.rows
                rate = rows / max(time.monotonic() - started, 1e-9)
                tell(f"{done:,} of {of:,} files, {rows:,} rows, {rate:,.0f} per second")

            if address is not None and job.outputs:
                from rss_rl.cluster.predict import score_on_ray

                scored = score_on_ray(packed, job, trusted, partial(say, out), address=address)
            else:
                scorer = Scorer(job, lambda: load_model(packed, trust=trusted, device=device))
                scored = (scorer.score(name, progress) for name in job.outputs)
            for counts in scored:
                done, total = done + 1, total + counts
                progress(Counts(0, 0))
    if done < of:
        say(out, f"{done:,} of {of:,} files were written to {output}; the same command continues")
        raise SystemExit(interruption.exit_code)
    there = f"; {job.complete:,} were complete already" if job.complete else ""
    bad = f", {total.bad:,} of them with an error" if total.bad else ""
    files = "1 file" if of == 1 else f"{of:,} files"
    say(SafeConsole(), f"wrote {output}: {files}, {total.rows:,} rows{bad}{there}")


@contextmanager
def _named(location: str) -> Iterator[str]:
    """The location, or a file of JSON lines with what standard input holds."""
    if location != "-":
        yield location
        return
    with TemporaryDirectory() as folder:
        path = Path(folder) / "stdin.jsonl"
        with path.open("wb") as lines:
            for line in sys.stdin.buffer:
                text = line.rstrip(b"\r\n").decode("utf-8", "surrogateescape")
                row = text.startswith("{")
                lines.write(line if row else json.dumps({"text": text}).encode() + b"\n")
        yield str(path)

"""`rss-rl predict`: run a trained model on a file of texts, or on a folder of files."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from rss_rl.api.interruption import Interruption
from rss_rl.api.options import Address, Device, Insecure, TextColumn, TrustPlugins, Which
from rss_rl.api.terminal import busy, say
from rss_rl.cli.show import console, echo
from rss_rl.errors import ConfigError


def predict(
    run: Annotated[Path, Parameter(name="RUN|EXPORT")],
    *,
    source: Annotated[str, Parameter(name="--input", metavar="FILE|FOLDER|URI")],
    target: Annotated[str, Parameter(name="--output", metavar="FILE|FOLDER|URI")],
    text: TextColumn = None,
    text_b: TextColumn = None,
    share: float | None = None,
    skip_bad_rows: bool = False,
    overwrite: bool = False,
    address: Address = None,
    insecure: Insecure = False,
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
        source: CSV, TSV, JSON lines or Parquet, also .gz, or a folder of Parquet files; here or at
            a URI (s3://, gs://, ...).
        target: A file of the same formats, not .gz; it appears when complete. Of a folder: a folder
            for the Parquet files.
        text: Column of the text, or of a pair's first.
        text_b: Column of a pair's second text.
        share: Share of each text's words to keep instead: the most probable ones, at least one.
        skip_bad_rows: Write what is wrong with a row into column `error`.
        overwrite: Replace existing outputs, also those of another model; never the input.
        address: Score the files of a folder on a Ray cluster: 'auto' for the one running on this
            machine, 'local' to start one here. Needs rss-rl on the nodes. Default: one file at a
            time, without Ray.

    Examples:
        `rss-rl predict runs/reviews --input reviews.csv --text review --output scored.parquet`

        `rss-rl predict models/sick --input pairs.jsonl --text a --text-b b --output scored.csv`

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

    if address is not None and device != "cpu":
        raise ConfigError(
            f"files scored on Ray are scored on CPUs, not on {device}",
            where="--device",
            remedy="Leave out --device, or --address",
        )
    trusted, out = EVERYTHING if trust_plugins else NOTHING, console(stderr=True)
    note = partial(say, out)
    packed = pack_model(run, which, trusted)
    job = begin(
        packed.sha256, source, target, tuple(filter(None, (text, text_b))),
        share=share, skip_bad_rows=skip_bad_rows, overwrite=overwrite, note=note,
    )  # fmt: skip
    of, done, total, started = len(job.outputs), 0, Counts(0, 0), time.monotonic()
    with (
        suppress(KeyboardInterrupt),
        Interruption(_stop) as interruption,
        busy(out, "starting") as tell,
    ):

        def progress(counts: Counts) -> None:
            """Show the counts of the file in work on top of the completed ones."""
            rows = total.rows + counts.rows
            rate = rows / max(time.monotonic() - started, 1e-9)
            tell(f"{done:,} of {of:,} files, {rows:,} rows, {rate:,.0f} per second")

        if address is not None and job.outputs:
            from rss_rl.cluster.predict import score_on_ray

            scored = score_on_ray(packed, job, trusted, note, address=address, insecure=insecure)
        else:
            scorer = Scorer(job, lambda: load_model(run, which, trusted, device))
            scored = (scorer.score(name, progress) for name in job.outputs)
        for counts in scored:
            done, total = done + 1, total + counts
            progress(Counts(0, 0))
    if done < of:
        say(out, f"{done:,} of {of:,} files were written to {target}; the same command continues")
        raise SystemExit(interruption.exit_code)
    there = f"; {job.complete:,} were complete already" if job.complete else ""
    bad = f", {total.bad:,} of them with an error" if total.bad else ""
    echo(f"wrote {target}: {of:,} files, {total.rows:,} rows{bad}{there}")


def _stop() -> None:
    os.write(2, b"\nstopping: incomplete files are not written; Ctrl-C again quits at once\n")
    raise KeyboardInterrupt

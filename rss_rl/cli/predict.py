"""`rss-rl predict`: run a trained model on a file of texts, or on a folder of files."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.status import Status

from rss_rl.api.interruption import Interruption
from rss_rl.api.terminal import say
from rss_rl.cli import options
from rss_rl.cli.options import checkpoint, console, option, text_columns, trust
from rss_rl.errors import ConfigError

if TYPE_CHECKING:
    from rss_rl.inference.artifact import PackedModel
    from rss_rl.inference.predict_file import Counts
    from rss_rl.inference.predict_folder import FolderJob

EPILOG = """
Examples:

`rss-rl predict runs/reviews --input reviews.csv --text review --output scored.parquet`

`rss-rl predict models/sick --input pairs.jsonl --text a --text-b b --output scored.csv`

`rss-rl predict models/reviews --input s3://bucket/reviews --text review
--output s3://bucket/scored --address auto` gives each file of a folder to the next free CPU of a
Ray cluster. If it is stopped or killed, repeat the command to continue.

`rss-rl predict models/reviews --input reviews/ --text review --output scored/ --address local`
uses all CPUs of this machine.
"""


def predict(
    path: options.ModelPath,
    source: Annotated[
        str,
        option(
            "--input FILE|FOLDER|URI",
            "CSV, TSV, JSON lines or Parquet, also .gz; or a folder of Parquet files, here or "
            "at a URI (s3://, gs://, ...).",
        ),
    ],
    target: Annotated[
        str,
        option(
            "--output FILE|FOLDER|URI",
            "A file of the same formats, not .gz; it appears when complete. For a folder or "
            "URI: a folder or URI for the Parquet files.",
        ),
    ],
    text: options.TextColumn = None,
    text_b: options.TextB = None,
    skip_bad_rows: Annotated[
        bool, option("--skip-bad-rows", "Write what is wrong with a row into column `error`.")
    ] = False,
    overwrite: Annotated[
        bool,
        option(
            "--overwrite",
            "Replace an existing output, or the files of an earlier call in its folder; "
            "never the input.",
        ),
    ] = False,
    address: Annotated[
        str | None,
        option(
            "--address HOST:PORT",
            "Score the files of a folder on a Ray cluster: 'auto' for the one running on "
            "this machine, 'local' to start one here. Needs rss-rl[data], and rss-rl on the "
            "nodes. Default: one file at a time, without Ray.",
        ),
    ] = None,
    insecure: options.Insecure = False,
    device: options.ComputeOn = "cpu",
    which: options.Which = "best",
    trust_plugins: options.TrustPlugins = False,
) -> None:
    """Predict for every row of a file, or of a folder of files, in constant memory.

    The output has a row for each row of the input: its number, the prediction, probabilities, the
    share of words kept, the words, the positions of those selected as head or dependent, and the
    columns of the input. For a folder, the output is a folder with a file for each file, and a
    first column that names it. If the command is stopped or killed, complete files are kept. Give
    the same command again to continue with the others.
    """
    from rss_rl.inference.artifact import pack_model
    from rss_rl.inference.model import load_model
    from rss_rl.inference.predict_file import check_target, score_file
    from rss_rl.inference.predict_folder import begin_folder
    from rss_rl.storage import is_uri

    columns, trusted = text_columns(text, text_b), trust(trust_plugins)
    file, written = Path(source), Path(target)
    folder = is_uri(source) or is_uri(target) or file.is_dir() or not file.suffix
    if folder or address is not None:
        if address is not None:
            from rss_rl.cluster.predict_folder import check_ray_data

            if device != "cpu":
                raise ConfigError(
                    f"files scored on Ray are scored on CPUs, not on {device}",
                    where="--device",
                    remedy="Leave out --device, or --address",
                )
            check_ray_data()
        packed = pack_model(path, checkpoint(which), trusted)
        job = begin_folder(
            packed,
            source,
            target,
            columns,
            trusted,
            skip_bad_rows=skip_bad_rows,
            overwrite=overwrite,
        )
        _score_folder(packed, job, address, insecure, device)
        return
    check_target(file, written, overwrite=overwrite)
    model = load_model(path, checkpoint(which), trusted, device)
    out = console(stderr=True)
    with Interruption(_stopping) as interruption, out.status("reading") as status:
        counts = score_file(
            model,
            file,
            written,
            columns,
            skip_bad_rows=skip_bad_rows,
            overwrite=overwrite,
            progress=_progress(status),
            stop=interruption.asked,
        )
    if not counts.complete:
        say(out, f"stopped after {counts.rows:,} rows; {target} was not written")
        raise typer.Exit(interruption.exit_code)
    typer.echo(f"wrote {target}: {_rows(counts)}")


def _rows(counts: Counts) -> str:
    return f"{counts.rows:,} rows" + (
        f", {counts.bad:,} of them with an error" if counts.bad else ""
    )


def _score_folder(
    packed: PackedModel, job: FolderJob, address: str | None, insecure: bool, device: str
) -> None:
    """Score the remaining files; at the end, say what is complete and how to continue."""
    from rss_rl.inference.predict_file import Counts
    from rss_rl.inference.predict_folder import score_here

    out, before, of = console(stderr=True), len(job.done), len(job.files)
    done, total = before, Counts(0, 0)
    if before:
        say(out, f"{before:,} of {of:,} files are complete already")
    try:
        # Waiting for Ray Data has no timeout: there the signal itself must interrupt it.
        announce = _stopping if address is None else _stop_now
        with (
            suppress(KeyboardInterrupt),
            Interruption(announce) as interruption,
            out.status("starting") as status,
        ):
            show = _progress(status)

            def progress(counts: Counts) -> None:
                """Show the current file's counts on top of the completed ones."""
                show(total + counts, f"{done:,} of {of:,} files, ")

            if address is None or not job.waiting:
                scored = score_here(packed, job, interruption.asked, progress, device)
            else:
                from rss_rl.cluster.predict_folder import score_on_ray

                note = partial(say, out)
                scored = score_on_ray(packed, job, note, address=address, insecure=insecure)
            for counts in scored:
                done += 1
                total += counts
                progress(Counts(0, 0))
    finally:
        if done < of:
            say(out, f"{job.complete():,} of {of:,} files are complete in {job.target.uri};")
            say(out, f"continue with: {_command()}")
    if done < of:
        raise typer.Exit(interruption.exit_code)
    there = f"; {before:,} were complete already" if before else ""
    typer.echo(f"wrote {job.target.uri}: {done - before:,} files, {_rows(total)}{there}")


def _command() -> str:
    """This command line without --overwrite, which would replace completed files."""
    return shlex.join(["rss-rl", *(word for word in sys.argv[1:] if word != "--overwrite")])


def _stopping() -> None:
    os.write(2, b"\nstopping: incomplete files are not written; Ctrl-C again quits at once\n")


def _stop_now() -> None:
    _stopping()
    raise KeyboardInterrupt


def _progress(status: Status) -> Callable[..., None]:
    """A callback that shows the number of rows done and the rate."""
    began = time.monotonic()

    def show(counts: Counts, before: str = "") -> None:
        rate = counts.rows / max(time.monotonic() - began, 1e-9)
        status.update(f"{before}{counts.rows:,} rows, {rate:,.0f} per second, {counts.bad:,} bad")

    return show

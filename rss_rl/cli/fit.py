"""`rss-rl fit`: from a table to a trained model in one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from rss_rl.cli import options
from rss_rl.cli.options import argument, console, end_run, option

EPILOG = """
Examples:

`rss-rl fit reviews.csv --text review --label stars --keep 0.2`

`rss-rl fit pairs.tsv --text a --text-b b --label score --task score --time 5m --out runs/pairs`

`fit` prepares the table, trains on it with `configs/own.yaml` (pairs: `own_pairs`, long texts:
`own_long`), and writes a report to open in a browser. It chooses settings from the number of rows,
the labels and the length of the texts, and prints each choice. KEY=VALUE settings after the file
override them. The same table is prepared only once. See also `rss-rl data prepare` and `rss-rl
train`, which have more options.
"""


def fit(
    data: Annotated[Path, argument("FILE", "Training rows: .csv, .tsv, .jsonl or .parquet.")],
    text: Annotated[str, option("--text COLUMN", "Column of the text.")],
    label: options.LabelColumn,
    overrides: options.OwnSettings = None,
    text_b: options.TextB = None,
    keep: Annotated[
        float | None,
        option(
            "--keep SHARE",
            "Share of the words to keep. Default: 0.4, or 0.2 if texts have over 100 words "
            "on average.",
        ),
    ] = None,
    config: Annotated[
        str | None,
        option(
            "--config CONFIG",
            "Train with this configuration, such as own_context, changed only by KEY=VALUE "
            "settings. Default: own, own_pairs or own_long, adapted to the data.",
        ),
    ] = None,
    pretrained: Annotated[
        str | None,
        option(
            "--pretrained FOLDER_OR_HUB_NAME",
            "A transformer to use: for word vectors and as context for the policy, or on a "
            "machine with a GPU as the classifier.",
        ),
    ] = None,
    phrases: Annotated[
        bool,
        option(
            "--phrases",
            "Of long texts, keep phrases like those that people mark. Default: single words, "
            "which predict a little better.",
        ),
    ] = False,
    time: options.Time = None,
    out: Annotated[
        Path | None, option("--out DIR", "Directory of the run. Default: runs/NAME for NAME.csv.")
    ] = None,
    dev: options.DevRows = None,
    test: options.TestRows = None,
    task: Annotated[
        options.TaskKind | None,
        options.table_option(
            "--task", "Whether labels are classes or numbers. Default: guessed from the labels."
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
    how: dict[str, Any] = {"task": task and task.value, "low": low, "high": high}
    how |= {"vectors": vectors or None, "skip_bad_rows": skip_bad_rows}
    run = fit_rows(
        data,
        text=text,
        label=label or "",
        text_b=text_b,
        keep=keep,
        config=config,
        pretrained=pretrained,
        phrases=phrases,
        dev=dev,
        test=test,
        time=time,
        out=out,
        overrides=overrides or [],
        prepared=how,
        overwrite=overwrite,
        console=shown,
    )
    end_run(run, shown, as_json=json_, page=True)

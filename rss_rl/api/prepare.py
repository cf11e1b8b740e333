"""Preparing data of any kind: files, rows, tables of other libraries, known datasets."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from cyclopts import Parameter

from rss_rl.api.options import Column, PythonOnly, Rows, TableOptions, Typed

if TYPE_CHECKING:
    from rss_rl.data.sources import Progress
    from rss_rl.data.store import Prepared


def prepare(
    data: Annotated[Rows, Typed(list[str]), Parameter(name="NAME|FILE")],
    *,
    out: Annotated[str | Path, Typed(str), Parameter(metavar="DIR")],
    text: Column = None,
    label: Column = None,
    folder: Annotated[
        str | Path | None, Typed(Path | None), Parameter(name="--from", metavar="FOLDER")
    ] = None,
    options: Annotated[
        Mapping[str, Any] | Sequence[str],
        Typed(list[str]),
        Parameter(name="--option", metavar="NAME=VALUE"),
    ] = (),
    lower: Annotated[bool, Parameter(negative="--no-lower")] = True,
    seed: int = 0,
    force: bool = False,
    progress: PythonOnly[Progress] = lambda *_: None,
    **table: Unpack[TableOptions],
) -> Prepared:
    """Turn a dataset into the files that training reads: tokens, vocabulary, vectors, counts.

    Give a name that `rss-rl data list` shows, or rows of your own, for which `text` and `label`
    name the columns. Data read from a URI are cached in the directory RSS_RL_CACHE
    (~/.cache/rss-rl).

    Args:
        data: A known dataset, or training rows: one or more .csv, .tsv, .jsonl or .parquet files.
            In Python also mappings, a pandas, polars, Arrow or Hugging Face table, or a mapping
            of its splits.
        out: Directory to make. Copied to a bucket, it can be trained on from there.
        text: Column with the text, or with a list of words (JSON lines, Parquet).
        label: Column with the label.
        folder: Folder with the files of a known dataset.
        options: A setting of a known dataset; repeatable.
        lower: Convert text to lower case. Lists of words are always kept as they are.
        seed: Seed of random vectors, generated datasets and random splits of known ones.
        force: Replace existing prepared data.
        progress: called with the current step, the amount done, and the total if known.
        table: how rows are read.

    Raises:
        DataError: a column, row, file or option that cannot be used, or `out` exists.

    Examples:
        `rss-rl data prepare sick-relatedness --from SICK --vectors glove.6B.100d.txt --out sick`

        `rss-rl data prepare snli --from snli_1.0 --vectors glove.6B.300d.txt
        --out data/snli`

        `rss-rl data prepare reviews.csv --text review --label stars --out data/reviews`

        `rss-rl data prepare pairs.tsv --text a --text-b b --label score --task score --out pairs`
    """
    from rss_rl.api.rows import make_source, named_values
    from rss_rl.data.prepare import prepare as prepare_source
    from rss_rl.data.sources import SourceRequest
    from rss_rl.data.store import open_prepared
    from rss_rl.errors import DataError
    from rss_rl.storage import is_uri

    if not str(out) or is_uri(str(out)):
        raise DataError(
            "--out is no directory",
            where=str(out),
            remedy="Name one to make, --out data/reviews, and copy it to where it is needed",
        )
    named = table.pop("vectors", None) or ()
    written: dict[str, Any] = {
        "vectors": [Path(v) for v in ([named] if isinstance(named, str | Path) else named)],
        "dim": table.pop("dim", 100),
        "label_weights": table.pop("label_weights", False),
        "max_words": table.pop("max_words", None),
        "skip_bad_rows": table.pop("skip_bad_rows", False),
    }
    request = SourceRequest(Path(folder) if folder else None, seed, named_values(options))
    with tempfile.TemporaryDirectory(prefix="rss-rl-rows-") as scratch:
        source = make_source(data, text, label, table, request, Path(scratch))
        prepare_source(
            source, Path(out), lower=lower, seed=seed, force=force, progress=progress, **written
        )
    return open_prepared(out)

"""Data of any kind into a prepared dataset: files, rows, tables of other libraries, known names."""

from __future__ import annotations

__all__ = ["Rows", "label_spec", "prepare"]

import math
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rss_rl.data.prepare import SHARD_MB
from rss_rl.data.prepare import prepare as prepare_source
from rss_rl.data.sources import Source
from rss_rl.data.staging import Progress
from rss_rl.data.store import Prepared, open_prepared
from rss_rl.data.tables import Columns, table
from rss_rl.data.upload import local_target, upload
from rss_rl.errors import DataError
from rss_rl.storage import is_uri
from rss_rl.types import LabelSpec

Rows = str | Path | Sequence[str | Path] | Iterable[Mapping[str, Any]] | Any
"""A .csv, .tsv, .jsonl or .parquet file or several, rows as mappings, or a pandas, Arrow or
Hugging Face table."""


def prepare(
    data: Rows,
    *,
    text: str,
    label: str,
    text_b: str | None = None,
    out: str | Path,
    task: str = "classes",
    low: float | None = None,
    high: float | None = None,
    id: str | None = None,
    rationale: str | None = None,
    rationale_b: str | None = None,
    dev: Rows | None = None,
    test: Rows | None = None,
    split: Sequence[float] = (0.8, 0.1, 0.1),
    split_seed: int = 0,
    progress: Progress | None = None,
    **settings: Any,
) -> Prepared:
    """Turn texts and labels into files that training reads: tokens, vocabulary, vectors, counts.

    Args:
        data: training rows.
        text, text_b: columns of the text and, for pairs, of the second one; a text may be a list
            of words. label: column of the label.
        out: directory to make, or a URI, to which it is uploaded.
        task: `classes` or `score`. low, high: range of a score; default that of the training rows.
        id: column that identifies a row. rationale, rationale_b: columns with a list of 0 and 1,
            one for each word of a text that is a list of words.
        dev, test: rows of these splits; default: cut from `data` by `split` and `split_seed`.
        progress: called with what is being done, how far, and the end where known.
        settings: `vectors, dim, lower, skip_bad_rows, force, seed, shard_mb` of
            `rss_rl.data.prepare.prepare`.

    Raises:
        DataError: a column, row or file that cannot be used, or `out` exists.
    """
    texts, bits = (text, text_b), (rationale, rationale_b)
    columns = Columns(
        tuple(name for name in texts if name), label, id, tuple(name for name in bits if name)
    )
    spec = label_spec(task, low, high)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rss-rl-rows-")))
        files = {
            name: _files(rows, folder / file)
            for name, file, rows in (
                ("train", "rows.parquet", data),
                ("dev", "dev.parquet", dev),
                ("test", "test.parquet", test),
            )
            if rows is not None
        }
        source = table(
            files["train"],
            columns,
            spec,
            dev=_only(files.get("dev")),
            test=_only(files.get("test")),
            shares=list(split),
            seed=split_seed,
        )
        return prepare_into(source, str(out), progress=progress, **settings)


def prepare_into(
    source: Source, out: str, *, progress: Progress | None = None, **settings: Any
) -> Prepared:
    """Prepare a source into a directory or URI; arguments as of `prepare`."""
    settings = {"shard_mb": SHARD_MB, "force": False} | settings
    shown: Callable[..., None] = progress or (lambda what, done, end: None)
    with local_target(out, settings["force"]) as folder:
        prepare_source(source, folder, progress=shown, **settings)
        if is_uri(out):
            upload(folder, out, shown)
        return open_prepared(folder if not is_uri(out) else out)


def label_spec(task: str, low: float | None, high: float | None) -> LabelSpec | None:
    """What a label column holds; None: classes, named by the training rows.

    Raises:
        DataError: settings that do not fit together.
    """
    if task not in ("classes", "score"):
        raise DataError(f"task '{task}' is neither classes nor score")
    if task == "classes":
        if low is not None or high is not None:
            raise DataError(
                "low and high are the range of a score", remedy="Add task=score (--task score)"
            )
        return None
    if low is None and high is None:
        return LabelSpec("score", low=-math.inf, high=math.inf)
    if low is None or high is None or low >= high:
        raise DataError("a score lies between two numbers", remedy="Give low and high")
    return LabelSpec("score", low=low, high=high)


def _only(files: Sequence[Path] | None) -> Path | None:
    if files is not None and len(files) != 1:
        raise DataError(f"{len(files)} files for one split", remedy="Join them into one")
    return None if files is None else files[0]


def _files(rows: Rows, path: Path) -> list[Path]:
    """Files with the rows: those that were named, or one that is written here."""
    if isinstance(rows, str | Path):
        return [Path(rows)]
    if isinstance(rows, list | tuple) and rows and all(isinstance(r, str | Path) for r in rows):
        return [Path(row) for row in rows]
    pq.write_table(_table(rows), path)
    return [path]


def _table(rows: Any) -> pa.Table:
    """Rows of any kind as an Arrow table.

    Raises:
        DataError: they are of no known kind, or there are none.
    """
    try:
        if isinstance(rows, pa.Table):
            found = rows
        elif hasattr(rows, "to_arrow") or hasattr(rows, "with_format"):  # polars; Hugging Face
            made = rows.to_arrow() if hasattr(rows, "to_arrow") else rows.with_format("arrow")[:]
            found = made if isinstance(made, pa.Table) else pa.Table.from_batches(made)
        elif hasattr(rows, "iloc"):
            found = pa.Table.from_pandas(rows, preserve_index=False)
        else:
            found = pa.Table.from_pylist([dict(row) for row in rows])
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise DataError(
            f"the rows cannot be read as a table: {str(error)[:200]}",
            remedy="Give a file, mappings with the same keys, or a pandas, Arrow or Hugging Face"
            " table",
        ) from error
    if not found.num_rows:
        raise DataError("there are no rows", remedy="Give at least a few dozen")
    return found

"""Scoring a whole file: block by block, in constant memory, and all of the output or none.

Columns of the output; those of a second text end in `_b`:

row                  number of the row that was read, from 1
error                what is wrong with the row; all that follows is empty then
prediction           name of the class, sentence or candidate; the score
probabilities        by name; empty for a score
kept                 share of the words that is head or dependent
words                of the text, which the numbers that follow count from 0
heads, dependents    numbers of the selected words

Behind them stand the columns of the input, empty where a row could not be cut into columns. One
that bears a name from above is called `input_` and its name.
"""

from __future__ import annotations

__all__ = ["Counts", "check_target", "score_file"]

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from rss_rl.data.records import column_types
from rss_rl.durable import is_same_file, sync_directory, sync_file
from rss_rl.errors import DataError, StorageError
from rss_rl.inference.explanation import Explanation
from rss_rl.inference.model import Encoded, Model, cuts
from rss_rl.inference.rows import TextRow, read_texts
from rss_rl.inference.writers import columns_beside, open_writer, own_columns, writable_kind
from rss_rl.types import DEPENDENT, HEAD

_BLOCK = 256


@dataclass(frozen=True)
class Counts:
    """Rows read and rows that could not be scored. `complete` is False where it was stopped."""

    rows: int
    bad: int
    complete: bool = True


def check_target(source: Path, target: Path, *, overwrite: bool = False) -> None:
    """Check that writing `target` would lose nothing.

    Raises:
        DataError: it is `source`, by whatever name or link; it exists and `overwrite` is not set;
            its ending names no format that is written.
    """
    writable_kind(target)
    if not os.path.lexists(target):
        return
    if target.is_dir():
        raise DataError("is a directory", where=str(target), remedy="Give a file as --output")
    if is_same_file(source, target):
        raise DataError(
            f"is the input {source} itself and would be lost",
            where=str(target),
            remedy="Give another --output",
        )
    if not overwrite:
        raise DataError(
            "exists already",
            where=str(target),
            remedy="Give another --output, or replace it with --overwrite",
        )


def score_file(
    model: Model,
    source: Path,
    target: Path,
    columns: tuple[str, ...] = (),
    *,
    skip_bad_rows: bool = False,
    overwrite: bool = False,
    progress: Callable[[Counts], None] = lambda counts: None,
    stop: Callable[[], bool] = lambda: False,
) -> Counts:
    """Predict for each row of `source` and write `target`, which appears when it is complete.

    Args:
        source: CSV, TSV, JSON lines or Parquet. columns: of its texts, see `read_texts`.
        target: .parquet, .csv, .tsv or .jsonl, see `check_target`.
        skip_bad_rows: write what is wrong with a row into its `error` instead of ending there.
        overwrite: replace a file that is there; `source` never is.
        progress: told after each block. stop: asked after each block; True leaves `target` alone.

    Raises:
        DataError: a bad row, named; a file or column that cannot be read; as `check_target`.
        StorageError: the target cannot be written; it is as it was.
    """
    check_target(source, target, overwrite=overwrite)
    temporary = target.with_name(f".tmp-{os.getpid()}-{target.name}")
    rows = read_texts(source, columns, model.inputs.sentences)
    given = column_types(source)
    own = own_columns(model.labels.kind == "score", model.inputs.sentences)
    beside = columns_beside(own, given)
    written = own | {beside[name]: kind for name, kind in given.items()}
    counts = Counts(0, 0)
    try:
        with open_writer(temporary, written) as write:
            while block := list(islice(rows, _BLOCK)):
                scored = list(_score(model, block, skip_bad_rows, beside))
                write(scored)
                bad = sum(row["error"] is not None for row in scored)
                counts = Counts(counts.rows + len(block), counts.bad + bad)
                progress(counts)
                if stop():
                    return Counts(counts.rows, counts.bad, complete=False)
        sync_file(temporary)
        check_target(source, target, overwrite=overwrite)  # it may have come meanwhile
        os.replace(temporary, target)
        sync_directory(target.absolute().parent)
    except OSError as error:
        raise StorageError(
            f"cannot be written ({error})", where=str(target), remedy="Give another --output"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    return counts


def _score(
    model: Model, block: list[TextRow], skip_bad_rows: bool, beside: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    encoded: list[Encoded] = []
    faults: dict[int, DataError] = {}
    for row in block:
        try:
            if row.fault is not None:
                raise row.fault
            encoded.append(model.encode(row.texts, row.where))
        except DataError as error:
            if not skip_bad_rows:
                raise
            faults[row.row] = error
    found = (explanation for cut in cuts(encoded) for explanation in model.read(cut))
    for row in block:
        fault = faults.get(row.row)
        told = {} if fault is not None else _cells(next(found))
        kept = {beside[name]: value for name, value in row.values.items()}
        yield {"row": row.row, "error": None if fault is None else fault.what, **told, **kept}


def _cells(explanation: Explanation) -> dict[str, Any]:
    sentences = explanation.sentences
    kept = sum(int(sentence.selection.any(0).sum()) for sentence in sentences)
    cells: dict[str, Any] = {
        "prediction": explanation.prediction,
        "probabilities": explanation.class_probabilities,
        "kept": kept / sum(len(sentence.words) for sentence in sentences),
    }
    for sentence, suffix in zip(sentences, ("", "_b"), strict=False):
        cells[f"words{suffix}"] = list(sentence.words)
        cells[f"heads{suffix}"] = sentence.selection[HEAD].nonzero()[0].tolist()
        cells[f"dependents{suffix}"] = sentence.selection[DEPENDENT].nonzero()[0].tolist()
    return cells

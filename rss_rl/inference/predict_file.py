"""Scoring a file in blocks, in constant memory; the output appears only when complete.

Columns of the output; those of a second text end in `_b`:

file                 name of the input file, if the input is a folder
row                  row number in the input, from 1
error                what is wrong with the row; the following columns are then empty
prediction           name of the class, sentence or candidate; the score
probabilities        by name; absent for a score
kept                 share of the words selected as head or dependent
words                of the text
heads, dependents    positions of the selected words, from 0

The columns of the input follow, empty if a row could not be parsed. Names that clash with those
above are prefixed with `input_`.
"""

from __future__ import annotations

import csv
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from rss_rl.data.checks import is_storable
from rss_rl.data.records import (
    Record,
    Source,
    column_names,
    column_types,
    file_kind,
    read_records,
    require_columns,
)
from rss_rl.data.sources import Text
from rss_rl.durable import disk_errors, is_same_file, sync_directory, sync_file
from rss_rl.errors import DataError, StorageError
from rss_rl.inference.explanation import Explanation
from rss_rl.inference.model import Encoded, Model, cuts
from rss_rl.storage import Storage, StoredFile
from rss_rl.types import DEPENDENT, HEAD

Rows = Sequence[Mapping[str, Any]]
Writer = AbstractContextManager[Callable[[Rows], None]]
_BLOCK = 256


@dataclass(frozen=True)
class Counts:
    """Rows read, and rows that could not be scored; `complete` is False if scoring was stopped."""

    rows: int
    bad: int
    complete: bool = True

    def __add__(self, other: Counts) -> Counts:
        """The sum of both."""
        complete = self.complete and other.complete
        return Counts(self.rows + other.rows, self.bad + other.bad, complete)


def check_target(source: Path, target: Path, *, overwrite: bool = False) -> None:
    """Check that writing `target` loses nothing.

    Raises:
        DataError: it is `source` under any name or link; it exists and `overwrite` is not set;
            its suffix is no output format.
    """
    _writable_kind(target)
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
    """Predict for each row of `source` and write `target`, which appears only when complete.

    Args:
        source: CSV, TSV, JSON lines or Parquet. columns: its text columns, see `read_texts`.
        target: .parquet, .csv, .tsv or .jsonl, see `check_target`.
        skip_bad_rows: report a bad row in its `error` column instead of raising.
        overwrite: replace an existing file, but never `source`.
        progress: called after each block. stop: polled then; True leaves `target` untouched.

    Raises:
        DataError: a bad row, named; an unreadable file or column; see `check_target`.
        StorageError: the target cannot be written; it is left untouched.
    """
    check_target(source, target, overwrite=overwrite)
    temporary = target.with_name(f".tmp-{os.getpid()}-{target.name}")
    try:
        with disk_errors(target, "cannot be written", "Give another --output", StorageError):
            counts = _score_all(
                model,
                source,
                lambda written: open_writer(temporary, written),
                columns,
                skip_bad_rows=skip_bad_rows,
                progress=progress,
                stop=stop,
            )
            if not counts.complete:
                return counts
            sync_file(temporary)
            check_target(source, target, overwrite=overwrite)  # may have appeared meanwhile
            os.replace(temporary, target)
            sync_directory(target.absolute().parent)
    finally:
        temporary.unlink(missing_ok=True)
    return counts


def score_stored(
    model: Model,
    source: StoredFile,
    target: Storage,
    columns: tuple[str, ...] = (),
    *,
    skip_bad_rows: bool = False,
    progress: Callable[[Counts], None] = lambda counts: None,
    stop: Callable[[], bool] = lambda: False,
) -> Counts:
    """`score_file` for a Parquet file on a storage, into a file of the same name on another.

    The output is first written to an unnamed temporary file, so that a kill leaves nothing behind.

    Raises:
        DataError, StorageError: see `score_file`; or a storage does not respond.
    """
    remedy = "Name a directory with free space in TMPDIR"
    here = Path(tempfile.gettempdir())
    with (
        disk_errors(here, "cannot be written", remedy, StorageError),
        tempfile.TemporaryFile() as file,
    ):
        counts = _score_all(
            model,
            source,
            lambda written: _parquet_writer(file, pa.schema(list(written.items()))),
            columns,
            skip_bad_rows=skip_bad_rows,
            progress=progress,
            stop=stop,
        )
        if counts.complete:
            target.upload(file, source.name)
    return counts


def _score_all(
    model: Model,
    source: Source,
    open_: Callable[[Mapping[str, pa.DataType]], Writer],
    columns: tuple[str, ...],
    *,
    skip_bad_rows: bool,
    progress: Callable[[Counts], None],
    stop: Callable[[], bool],
) -> Counts:
    """Write the scored rows with the writer that `open_` opens for their columns."""
    rows = read_texts(source, columns, model.inputs.sentences)
    given = column_types(source)
    file = {"file": source.name} if isinstance(source, StoredFile) else {}
    own = dict.fromkeys(file, pa.string())
    own |= own_columns(model.labels.kind == "score", model.inputs.sentences)
    beside = columns_beside(own, given)
    counts = Counts(0, 0)
    with open_(own | {beside[name]: kind for name, kind in given.items()}) as write:
        while block := list(islice(rows, _BLOCK)):
            scored = [file | row for row in _score(model, block, skip_bad_rows, beside)]
            write(scored)
            bad = sum(row["error"] is not None for row in scored)
            counts += Counts(len(block), bad)
            progress(counts)
            if stop():
                return replace(counts, complete=False)
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
        cells = {} if fault is not None else _cells(next(found))
        kept = {beside[name]: value for name, value in row.values.items()}
        yield {"row": row.row, "error": None if fault is None else fault.what, **cells, **kept}


def _cells(explanation: Explanation) -> dict[str, Any]:
    cells: dict[str, Any] = {
        "prediction": explanation.prediction,
        "probabilities": explanation.class_probabilities,
        "kept": explanation.kept,
    }
    for sentence, suffix in zip(explanation.sentences, ("", "_b"), strict=False):
        cells[f"words{suffix}"] = list(sentence.words)
        cells[f"heads{suffix}"] = sentence.selection[HEAD].nonzero()[0].tolist()
        cells[f"dependents{suffix}"] = sentence.selection[DEPENDENT].nonzero()[0].tolist()
    return cells


@dataclass(frozen=True)
class TextRow:
    """Texts of one row.

    row     its number, from 1, as in `rss_rl.data.records`
    where   file and row, for messages
    fault   what is wrong with the row, which then has no texts
    values  of all columns; empty if the row could not be parsed
    """

    row: int
    where: str
    texts: tuple[Text, ...] = ()
    fault: DataError | None = None
    values: Mapping[str, Any] = field(default_factory=dict)


def read_texts(path: Source, columns: Sequence[str], texts: int) -> Iterator[TextRow]:
    """Stream the texts of a CSV, TSV, JSON-lines or Parquet file.

    Args:
        columns: one per text; may be empty if the file has no other columns.
        texts: per example.

    Raises:
        DataError: the file cannot be read, or lacks a column.
    """
    have = column_names(path)
    wanted = list(columns) or have
    if len(wanted) != texts:
        raise DataError(
            f"the task has {texts} text(s) per example, {len(wanted)} column(s) are named",
            where=str(path),
            remedy=f"Name them with {'--text' if texts == 1 else '--text and --text-b'}; the"
            f" file's are: {', '.join(have) or 'none'}",
        )
    require_columns(path, have, wanted)
    for record in read_records(path):
        where = f"{path}, row {record.row}"
        if isinstance(record, Record):
            yield _row(record, wanted, where)
        else:
            yield TextRow(record.row, where, fault=record.error())


def _row(record: Record, columns: Sequence[str], where: str) -> TextRow:
    texts: list[Text] = []
    for name in columns:
        text = _text(record.values.get(name))
        if text is None:
            what, remedy = "no text", "Fill it"
        elif not is_storable(text if isinstance(text, tuple) else (text,)):
            what, remedy = "half a character (a lone surrogate)", "Write the text again as UTF-8"
        else:
            texts.append(text)
            continue
        fault = DataError(f"column '{name}' holds {what}", where=where, remedy=remedy)
        return TextRow(record.row, where, fault=fault, values=record.values)
    return TextRow(record.row, where, tuple(texts), values=record.values)


def _text(value: Any) -> Text | None:
    if isinstance(value, str):
        return value if value.strip() else None
    if isinstance(value, list) and value and all(isinstance(word, str) and word for word in value):
        return tuple(value)
    return None


def own_columns(score: bool, texts: int) -> dict[str, pa.DataType]:
    """Name and Arrow type of each column that scoring adds.

    Args:
        score: whether the prediction is a number. texts: per example.
    """
    columns = {
        "row": pa.int64(),
        "error": pa.string(),
        "prediction": pa.float64() if score else pa.string(),
        "probabilities": pa.map_(pa.string(), pa.float64()),
        "kept": pa.float64(),
    }
    if score:
        del columns["probabilities"]
    for suffix in ("", "_b")[:texts]:
        columns[f"words{suffix}"] = pa.list_(pa.string())
        columns |= dict.fromkeys((f"heads{suffix}", f"dependents{suffix}"), pa.list_(pa.int64()))
    return columns


def columns_beside(own: Iterable[str], given: Iterable[str]) -> dict[str, str]:
    """Output names of the input's columns, renamed if they clash with the `own` names.

    >>> columns_beside(["row", "error"], ["text", "row", "input_row"])
    {'text': 'text', 'row': 'input_input_row', 'input_row': 'input_row'}
    """
    given = list(given)
    taken = {*own, *given}
    shown = {}
    for name in given:
        free = name
        if name in own:
            while free in taken:
                free = f"input_{free}"
        taken.add(free)
        shown[name] = free
    return shown


def _writable_kind(path: Path) -> str:
    """Format of an output file, see `file_kind`.

    Raises:
        DataError: another suffix, or .gz.
    """
    kind = file_kind(path)
    if path.suffix == ".gz":
        raise DataError(
            "output is not compressed", where=str(path), remedy="Leave .gz out, or give .parquet"
        )
    return kind


@contextmanager
def open_writer(path: Path, columns: Mapping[str, pa.DataType]) -> Iterator[Callable[[Rows], None]]:
    """Open a file for writing, in the format of its suffix; yields a function that writes rows.

    Args:
        columns: name and Arrow type of each; only Parquet uses the types. Values of a string
            column that are not strings are written as JSON.

    Raises:
        DataError: another suffix, or .gz. OSError: a write fails.
    """
    schema = pa.schema(list(columns.items()))
    kind = _writable_kind(path)
    if kind == "parquet":
        with _parquet_writer(path, schema) as write:
            yield write
        return
    # A lone surrogate in another column is written as an escape, which JSON reads back unchanged.
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as stream:
        if kind == "jsonl":
            yield lambda rows: stream.writelines(
                _json({name: row.get(name) for name in schema.names}) + "\n" for row in rows
            )
            return
        table = csv.writer(stream, delimiter="\t" if kind == "tsv" else ",")
        table.writerow(schema.names)
        yield lambda rows: table.writerows(_fields(row, schema.names) for row in rows)


@contextmanager
def _parquet_writer(target: Path | BinaryIO, schema: pa.Schema) -> Iterator[Callable[[Rows], None]]:
    with pq.ParquetWriter(target, schema) as writer:
        yield lambda rows: writer.write_table(_table(rows, schema))


def _table(rows: Rows, schema: pa.Schema) -> pa.Table:
    columns = [_column([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.table(columns, schema=schema)


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_map(kind):
        pairs = [list(v.items()) if isinstance(v, Mapping) else v for v in values]
        return pa.array(pairs, kind)
    if pa.types.is_string(kind):
        return pa.array([None if v is None else _as_text(v) for v in values], kind)
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.array(values, pa.string()).cast(kind)  # `read_records` returns them as strings
    return pa.array(values, kind)


def _as_text(value: Any) -> str:
    text = value if isinstance(value, str) else _json(value)
    return text.encode("utf-8", "backslashreplace").decode()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _fields(row: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    """Values of a CSV row; lists and mappings as JSON."""
    values = (row.get(name) for name in names)
    return [_json(value) if isinstance(value, list | dict) else value for value in values]

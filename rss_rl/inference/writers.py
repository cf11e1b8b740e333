"""Writing rows block by block as Parquet, CSV, TSV or JSON lines."""

from __future__ import annotations

__all__ = ["Rows", "columns_beside", "open_writer", "own_columns", "writable_kind"]

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rss_rl.data.records import file_kind
from rss_rl.errors import DataError

Rows = Sequence[Mapping[str, Any]]
_BY_TEXT = (
    ("words", pa.list_(pa.string())),
    ("heads", pa.list_(pa.int64())),
    ("dependents", pa.list_(pa.int64())),
)


def own_columns(score: bool, texts: int) -> dict[str, pa.DataType]:
    """Name and Arrow type of each column that scoring adds.

    Args:
        score: the prediction is a number. texts: of an example.
    """
    columns = [
        ("row", pa.int64()),
        ("error", pa.string()),
        ("prediction", pa.float64() if score else pa.string()),
        ("probabilities", pa.map_(pa.string(), pa.float64())),
        ("kept", pa.float64()),
    ]
    for suffix in ("", "_b")[:texts]:
        columns += [(f"{name}{suffix}", kind) for name, kind in _BY_TEXT]
    return {name: kind for name, kind in columns if not (score and name == "probabilities")}


def columns_beside(own: Iterable[str], given: Iterable[str]) -> dict[str, str]:
    """What columns of the input are called in the output, where the `own` names are taken.

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


def writable_kind(path: Path) -> str:
    """The format of an output, see `file_kind`.

    Raises:
        DataError: another ending, or .gz.
    """
    kind = file_kind(path)
    if path.suffix == ".gz":
        raise DataError(
            "output is not compressed", where=str(path), remedy="Leave .gz out, or give .parquet"
        )
    return kind


@contextmanager
def open_writer(path: Path, columns: Mapping[str, pa.DataType]) -> Iterator[Callable[[Rows], None]]:
    """A function that writes a block of rows; the ending of `path` says in which format.

    Args:
        columns: name and Arrow type of each; the type counts for Parquet alone. What a column of
            text holds that is no text is written as JSON.

    Raises:
        DataError: another ending, or .gz. OSError: the disk refuses.
    """
    schema = pa.schema(list(columns.items()))
    kind = writable_kind(path)
    if kind == "parquet":
        with pq.ParquetWriter(path, schema) as writer:
            yield lambda rows: writer.write_table(_table(rows, schema))
        return
    # Half a sign that stood in a column beside the texts: in JSON its escape is what it was.
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as stream:
        if kind == "jsonl":
            yield lambda rows: stream.writelines(_lines(rows, schema.names))
            return
        table = csv.writer(stream, delimiter="\t" if kind == "tsv" else ",")
        table.writerow(schema.names)
        yield lambda rows: table.writerows(_fields(row, schema.names) for row in rows)


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
        return pa.array(values, pa.string()).cast(kind)  # as `read_records` gives them
    return pa.array(values, kind)


def _as_text(value: Any) -> str:
    text = value if isinstance(value, str) else _json(value)
    return text.encode("utf-8", "backslashreplace").decode()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _lines(rows: Rows, names: Sequence[str]) -> Iterator[str]:
    for row in rows:
        yield _json({name: row.get(name) for name in names}) + "\n"


def _fields(row: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    """Lists and tables of probabilities as JSON within a field."""
    values = (row.get(name) for name in names)
    return [_json(value) if isinstance(value, list | dict) else value for value in values]

"""Streaming the rows of delimited, JSON-lines and Parquet files, bad rows included.

Readers yield records or bad rows one by one and hold at most a block of the file in memory.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, AnyStr, Literal, TypeVar, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, ValidationError

from rss_rl.data.checks import SHORTEN, is_storable
from rss_rl.data.sources import BadRow, RawExample, Text
from rss_rl.durable import check_file
from rss_rl.errors import DataError, nearest
from rss_rl.json_files import first_fault

_KINDS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
_ENCODING_REMEDY = "Save the file as UTF-8"
_LINES_REMEDY = "Write one JSON object a line"
_QUOTES_REMEDY = 'Close its quotes, and write "" for a quote within quotes'
_BLOCK_ROWS = 1024
_Result = TypeVar("_Result")
_MOST_LINES = 1000
"""Lines of a row of a delimited file; one of more has a quote that is not closed."""
_LONGEST_ROW = 1 << 25
"""Characters of a row; a longer one is an unclosed quote, or no text of anybody's."""
_TOO_LONG = f"more than {_LONGEST_ROW:,} characters"
_BLOCK_BYTES = 1 << 26
"""Of the rows of a Parquet file that are held at once, as far as its footer tells."""
_CHUNK = 1 << 20
_SURROGATE = re.compile("[\udc80-\udcff]")
_ASCII_SPACE = " \t\n\r\f\v"
_WORD = re.compile(f"[^{_ASCII_SPACE}]+")


@dataclass(frozen=True)
class Record:
    """One row: the file and line (first = 1) or Parquet row (first = 1), and values by column."""

    file: str
    row: int
    values: Mapping[str, Any]

    def bad(self, reason: str, remedy: str = "", *, by_convention: bool = False) -> BadRow:
        """This record as a bad row."""
        content = json.dumps(self.values, ensure_ascii=False, default=str)
        return BadRow(self.file, self.row, reason, remedy, content, by_convention)

    def example(
        self, id: str, texts: tuple[Text, ...], label: str | float, **more: Any
    ) -> RawExample:
        """The example that this record holds; `more` are further fields of `RawExample`."""
        return RawExample(id, texts, label, file=self.file, row=self.row, **more)


def examples(
    rows: Iterable[Record | BadRow], convert: Callable[[Record], _Result | BadRow]
) -> Iterator[_Result | BadRow]:
    """What `convert` makes of each record; rows that are bad already stay.

    A record that `convert` cannot validate (see `RowModel`) is a bad row.
    """
    for row in rows:
        try:
            yield row if isinstance(row, BadRow) else convert(row)
        except ValidationError as error:
            assert isinstance(row, Record)
            yield row.bad(first_fault(error), AS_GIVEN)


AS_GIVEN = "Use the files as their authors give them"
"""Remedy for a row of a published dataset that is not as it was published."""


class RowModel(BaseModel):
    """The fields of a published row that are read; types are not converted."""

    model_config = ConfigDict(strict=True, frozen=True)


def file_kind(path: Path) -> str:
    """'csv', 'tsv', 'jsonl' or 'parquet', by the suffix; text may be gzipped (.csv.gz).

    Raises:
        DataError: the suffix is another.
    """
    suffix = Path(path.stem).suffix if is_gzip(path) else path.suffix
    kind = _KINDS.get(suffix.lower())
    if kind is None or (kind == "parquet" and is_gzip(path)):
        raise DataError(
            f"files ending in '{path.suffix}' are not read",
            where=str(path),
            remedy="Give a .csv, .tsv, .jsonl or .parquet file",
        )
    return kind


def is_gzip(path: Path) -> bool:
    """Whether a file's name says that it is gzipped."""
    return path.suffix.lower() == ".gz"


def read_records(
    path: Path, kind: str = "", *, quoted: bool = True, columns: Container[str] | None = None
) -> Iterator[Record | BadRow]:
    """Stream the rows of a file.

    Args:
        path: the file.
        kind: as `file_kind` gives it; empty: by the suffix.
        quoted: whether '"' quotes the fields of a delimited file; False: it has no special meaning.
        columns: that matter; None: all. The others may be what cannot be read; records may lack
            them.

    Raises:
        DataError: the file cannot be opened or read, or its header is unusable.
    """
    kind = kind or file_kind(path)
    with file_errors(path):
        if kind == "parquet":
            yield from _read_parquet(path, columns)
        elif kind == "jsonl":
            yield from _read_json_lines(path)
        else:
            yield from _read_delimited(path, "\t" if kind == "tsv" else ",", quoted, columns)


@contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Re-raise errors of the system and of damaged files as a `DataError`."""
    try:
        yield
    except (OSError, EOFError, zlib.error, pa.ArrowException, UnicodeDecodeError) as error:
        refused = getattr(error, "errno", None) is not None
        raise DataError(
            f"cannot be read ({getattr(error, 'strerror', None) or error})",
            where=str(path),
            remedy="Check the path and the disk"
            if refused
            else "It is cut short or damaged: write or fetch it again",
        ) from error


def column_names(path: Path, kind: str = "") -> list[str]:
    """Names of the columns: of the header, the schema, or the first readable JSON object.

    Raises:
        DataError: the file cannot be read, or has no header or no JSON object.
    """
    kind = kind or file_kind(path)
    if kind == "jsonl":
        return _first_keys(path)
    with file_errors(path):
        if kind == "parquet":
            with _parquet(path) as file:
                return list(file.schema_arrow.names)
        with _open_text(path) as stream:
            return _header(
                path, _fields_of(_DelimitedLines(stream), "\t" if kind == "tsv" else ",")
            )


def _first_keys(path: Path) -> list[str]:
    """The keys of the first readable JSON object."""
    bad: BadRow | None = None
    for row in read_records(path, "jsonl"):
        if isinstance(row, Record):
            return list(row.values)
        bad = bad or row
    if bad is None:
        raise DataError("has no rows", where=str(path), remedy=_LINES_REMEDY)
    raise DataError(
        f"no line is a JSON object; of this one: {bad.reason}",
        where=f"{path}, row {bad.row}",
        remedy=_LINES_REMEDY,
    )


def column_types(path: Path) -> dict[str, pa.DataType]:
    """Every column of a file with an Arrow type that can hold its values.

    Of Parquet those of its schema; of delimited files and JSON lines text. JSON lines are read
    once completely, as a key may come late.

    Raises:
        DataError: the file cannot be read.
    """
    kind = file_kind(path)
    if kind == "parquet":
        with file_errors(path), _parquet(path) as file:
            schema = file.schema_arrow
            return dict(zip(schema.names, schema.types, strict=True))
    names: Iterable[str] = column_names(path, kind)
    if kind == "jsonl":
        records = (record for record in read_records(path, kind) if isinstance(record, Record))
        names = dict.fromkeys(name for record in records for name in record.values)
    return dict.fromkeys(names, pa.string())


def require_columns(path: Path, have: Sequence[str], want: Sequence[str]) -> None:
    """Check that all columns of `want` exist, and once.

    Raises:
        DataError: one is missing, with the nearest one, or is there more than once.
    """
    _check_once(path, have, want)
    for name in want:
        if name not in have:
            raise DataError(
                f"there is no column '{name}'{nearest(name, list(have))}",
                where=f"{path}, row 1",
                remedy=f"Its columns are: {', '.join(have) or 'none'}{_separator(have)}",
            )


def _separator(columns: Sequence[str]) -> str:
    """A hint for a table that was read as one column because of another separator."""
    other = next((mark for mark in ";|\t" if mark in columns[0]), "") if len(columns) == 1 else ""
    if not other:
        return ""
    return f". They look separated by {other!r}: write a comma in place of it, or a tab in a .tsv"


def _open_text(path: Path, encoding: str = "utf-8-sig") -> IO[str]:
    # Bytes of another encoding become lone surrogates, so that a bad row does not end reading.
    arguments = {"encoding": encoding, "errors": "surrogateescape", "newline": ""}
    check_file(path)
    if is_gzip(path):
        return cast(IO[str], gzip.open(path, "rt", **arguments))  # type: ignore[call-overload]
    return path.open("r", **arguments)  # type: ignore[call-overload, no-any-return]


def _undecodable(text: str) -> bool:
    return not text.isascii() and _SURROGATE.search(text) is not None


def _shown(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _header(path: Path, reader: Any) -> list[str]:
    try:
        names = [str(name).strip() for name in next(reader, [])]
    except csv.Error as error:
        raise DataError(f"the header is malformed ({error})", where=f"{path}, row 1") from error
    if not names or _undecodable("".join(names)):
        raise DataError(
            "there is no header of column names" if not names else "the header is not UTF-8",
            where=f"{path}, row 1",
            remedy="Write the column names into the first line" if not names else _ENCODING_REMEDY,
        )
    return names


def _check_once(path: Path, names: Sequence[str], columns: Container[str] | None) -> None:
    """Refuse two columns of a name that matters."""
    counts = Counter(names)
    for name in sorted(counts):
        if counts[name] > 1 and (columns is None or name in columns):
            raise DataError(
                f"has the column '{name}' more than once",
                where=str(path),
                remedy="Give each column a name of its own",
            )


def bounded_lines(stream: IO[AnyStr]) -> Iterator[AnyStr]:
    """The lines of a stream in flat memory: of one that `is_too_long` only the beginning."""
    while line := stream.readline(_LONGEST_ROW + 1):
        yield line
        if is_too_long(line):
            while line and line[-1:] not in ("\n", "\r", b"\n"):
                line = stream.readline(_CHUNK)


def is_too_long(row: str | bytes) -> bool:
    """Whether a row has more characters than any that is read."""
    return len(row) > _LONGEST_ROW


class _DelimitedLines:
    """Lines for `csv.reader`, which asks for more while a quote is open.

    number  of the last line, first = 1. left: characters that the row may still have
    """

    def __init__(self, stream: IO[str]) -> None:
        self._lines = bounded_lines(stream)
        self.number, self.left = 0, _LONGEST_ROW

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.number += 1
        self.left -= len(line)
        if self.left < 0:
            raise csv.Error(_TOO_LONG)
        return line


def _fields_of(lines: Iterable[str], delimiter: str, quoted: bool = True) -> Any:
    """A reader of the fields of each row."""
    # Python has one limit for the whole process, 131,072 characters by default.
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_ROW))
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    return csv.reader(lines, delimiter=delimiter, quoting=quoting, strict=True)


def _read_delimited(
    path: Path, delimiter: str, quoted: bool, columns: Container[str] | None
) -> Iterator[Record | BadRow]:
    file = str(path)
    with _open_text(path) as stream:
        lines = _DelimitedLines(stream)
        reader = _fields_of(lines, delimiter, quoted)
        names = _header(path, reader)
        _check_once(path, names, columns)
        while True:
            row, lines.left = lines.number + 1, _LONGEST_ROW
            try:
                values = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                # A quote that is not closed swallows the lines up to the next one.
                end = f", which ends in line {lines.number}" if lines.number > row else ""
                yield BadRow(file, row, f"malformed row{end} ({error})", _QUOTES_REMEDY)
                continue
            text = delimiter.join(values)
            if _undecodable(text):
                yield BadRow(file, row, "bytes that are not UTF-8", _ENCODING_REMEDY, _shown(text))
            elif lines.number - row > _MOST_LINES:
                reason = f"a quote in this row is not closed before line {lines.number}"
                yield BadRow(file, row, reason, _QUOTES_REMEDY, text)
            elif len(values) == len(names):
                yield Record(file, row, dict(zip(names, values, strict=True)))
            elif values:
                reason = f"malformed row: {len(values)} fields, the header has {len(names)}"
                yield BadRow(file, row, reason, "Quote fields that contain the delimiter", text)


def read_lines(path: Path, encoding: str = "utf-8-sig") -> Iterator[Record | BadRow]:
    """Stream the lines of a text file, which may be gzipped, as records of one value, `line`.

    Empty lines are skipped.

    Raises:
        DataError: the file cannot be opened or read.
    """
    with file_errors(path), _open_text(path, encoding) as stream:
        for row, line in enumerate(bounded_lines(stream), start=1):
            text = line.strip(_ASCII_SPACE)
            if is_too_long(line):
                yield BadRow(str(path), row, _TOO_LONG, SHORTEN, text)
            elif _undecodable(text):
                reason = f"bytes that are not {encoding.removesuffix('-sig').upper()}"
                yield BadRow(str(path), row, reason, _ENCODING_REMEDY, _shown(text))
            elif text:
                yield Record(str(path), row, {"line": text})


def count_lines(path: Path) -> int:
    """Number of lines of a text file, including empty ones.

    Raises:
        DataError: it cannot be opened or read.
    """
    with file_errors(path), _open_text(path) as stream:
        return sum(1 for _ in bounded_lines(stream))


def ascii_words(text: str) -> list[str]:
    """The words of a text, separated by ASCII white space alone."""
    return _WORD.findall(text)


def _read_json_lines(path: Path) -> Iterator[Record | BadRow]:
    remedy = _LINES_REMEDY
    for line in read_lines(path):
        if isinstance(line, BadRow):
            yield line
            continue
        file, row, text = line.file, line.row, line.values["line"]
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            yield BadRow(file, row, f"malformed row: no JSON ({error})", remedy, text)
            continue
        if not isinstance(values, dict):
            yield BadRow(file, row, "malformed row: no JSON object", remedy, text)
        elif not is_storable(tuple(values)):
            reason = "malformed row: a key contains a lone surrogate"
            yield BadRow(file, row, reason, "Write the keys again as UTF-8", text)
        else:
            yield Record(file, row, values)


def _parquet(path: Path) -> Any:
    check_file(path)
    path.open("rb").close()  # for the system's own message
    return pq.ParquetFile(path)


def _read_parquet(path: Path, columns: Container[str] | None) -> Iterator[Record | BadRow]:
    with _parquet(path) as file:
        names = file.schema_arrow.names
        _check_once(path, names, columns)
        wanted = [name for name in names if columns is None or name in columns]
        row = 0
        for block in _blocks(file, wanted):
            values = [_python_values(path, name, block.column(name)) for name in wanted]
            for cells in zip(*values, strict=True):
                row += 1
                yield Record(str(path), row, dict(zip(wanted, cells, strict=True)))


def _blocks(file: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a Parquet file, some at a time."""
    for group in range(file.num_row_groups):
        about = file.metadata.row_group(group)
        rows = _BLOCK_BYTES * about.num_rows // max(1, about.total_byte_size)
        rows = min(max(rows, 1), _BLOCK_ROWS)
        yield from file.iter_batches(batch_size=rows, row_groups=[group], columns=columns)


def _python_values(path: Path, name: str, column: Any) -> list[Any]:
    """Values of a column; nanoseconds, for which Python has no type, as text or integers, as are
    times before year 1 or after 9999."""
    kind = column.type
    try:
        if pa.types.is_duration(kind) or kind == pa.time64("ns"):
            column = column.cast(pa.int64())
        elif pa.types.is_timestamp(kind) and kind.unit == "ns":
            column = column.cast(pa.string())
        try:
            values: list[Any] = column.to_pylist()
        except (ValueError, OverflowError):
            integer = pa.int32() if pa.types.is_date32(kind) else pa.int64()
            values = column.cast(integer).to_pylist()
    except (ValueError, OverflowError, pa.ArrowException) as error:
        raise DataError(
            f"a value of column '{name}' ({kind}) cannot be read ({error})",
            where=str(path),
            remedy="Leave the column out, or write it as text",
        ) from error
    return values

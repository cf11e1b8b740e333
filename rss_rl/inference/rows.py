"""Rows of a table of texts, one after another, with what is wrong with a row beside it."""

from __future__ import annotations

__all__ = ["TextRow", "read_texts"]

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rss_rl.data.checks import is_storable
from rss_rl.data.records import Record, column_names, read_records, require_columns
from rss_rl.data.sources import Text
from rss_rl.errors import DataError


@dataclass(frozen=True)
class TextRow:
    """Texts of one row.

    row    its number, from 1, as `rss_rl.data.records` counts
    where  the file and row, for messages
    fault  what is wrong with it; there are no texts then
    values of all columns; none where the row could not be cut into them
    """

    row: int
    where: str
    texts: tuple[Text, ...] = ()
    fault: DataError | None = None
    values: Mapping[str, Any] = field(default_factory=dict)


def read_texts(path: Path, columns: Sequence[str], texts: int) -> Iterator[TextRow]:
    """Stream the texts of a CSV, TSV, JSON-lines or Parquet file.

    Args:
        columns: one for each text; none: the columns of a file that has no others.
        texts: of an example.

    Raises:
        DataError: the file cannot be read, or has not these columns.
    """
    have = column_names(path)
    wanted = list(columns) or have
    if len(wanted) != texts:
        raise DataError(
            f"the task has {texts} text(s) an example, {len(wanted)} column(s) are named",
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
    found: list[Text] = []
    for name in columns:
        text = _text(record.values.get(name))
        if text is None:
            fault = DataError(f"column '{name}' holds no text", where=where, remedy="Fill it")
            return TextRow(record.row, where, fault=fault, values=record.values)
        if not is_storable(text if isinstance(text, tuple) else (text,)):
            fault = DataError(
                f"column '{name}' holds half a sign (a lone surrogate)",
                where=where,
                remedy="Write the text again as UTF-8",
            )
            return TextRow(record.row, where, fault=fault, values=record.values)
        found.append(text)
    return TextRow(record.row, where, tuple(found), values=record.values)


def _text(value: Any) -> Text | None:
    if isinstance(value, str):
        return value if value.strip() else None
    if isinstance(value, list) and value and all(isinstance(word, str) and word for word in value):
        return tuple(value)
    return None

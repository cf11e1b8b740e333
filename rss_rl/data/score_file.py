"""Scores of the words of a split's examples by other methods, read from a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import ConfigDict, FiniteFloat, TypeAdapter, ValidationError

from rss_rl.data.store import Split
from rss_rl.data.tables import Record, read_records
from rss_rl.errors import DataError
from rss_rl.json_files import first_fault
from rss_rl.types import Array

_LISTS = TypeAdapter(list[list[FiniteFloat | bool]], config=ConfigDict(strict=True))
_FORM = 'Write {"id": ..., "scores": [...]} per line: the example\'s id and a number for each word'


def read_scores(path: Path, split: Split) -> list[tuple[Array, ...]]:
    """For each row of the split: S x float64 [N_s], one score for each word of a sentence.

    The file has JSON lines, `{"id": ..., "scores": [...]}`: the id that the source gave the example
    (`rss-rl data show` prints it), and for an example with two sentences one list for each. Lines
    with other ids, such as those of another split, are skipped.

    Raises:
        DataError: the file cannot be read, a line is not such a record or does not fit its example,
            or an id has two lines or none.
    """
    rows = {split.example_id(row): row for row in range(len(split))}
    lengths = split.lengths()
    scores: dict[int, tuple[Array, ...]] = {}
    lines: dict[str, int] = {}
    stranger = ""
    for record in read_records(path, "jsonl"):
        where = f"{path}, line {record.row}"
        if not isinstance(record, Record):
            raise DataError(record.reason, where=where, remedy=record.remedy)
        known = str(record.values.get("id"))
        if known not in rows:
            if "id" not in record.values:
                raise DataError("has no 'id'", where=where, remedy=_FORM)
            stranger = stranger or f"; line {record.row} has '{known}', which is not of this split"
            continue
        if known in lines:
            raise DataError(f"'{known}' has scores in line {lines[known]} already", where=where)
        lines[known] = record.row
        scores[rows[known]] = _scores(record, known, lengths[rows[known]].tolist(), where)
    missing = [known for known in rows if known not in lines]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise DataError(
            f"has no scores of '{missing[0]}'{more} of the {split.name} split{stranger}",
            where=str(path),
            remedy="Write a line for each example, or name another --split",
        )
    return [scores[row] for row in range(len(split))]


def _scores(record: Record, known: str, lengths: list[int], where: str) -> tuple[Array, ...]:
    value = record.values.get("scores")
    if len(lengths) == 1 and not (isinstance(value, list) and value and isinstance(value[0], list)):
        value = [value]
    try:
        scores = _LISTS.validate_python(value)
    except ValidationError as error:
        what = f"'scores' of '{known}' are not a list of finite numbers for each sentence"
        raise DataError(f"{what} ({first_fault(error)})", where=where, remedy=_FORM) from error
    if [len(part) for part in scores] != lengths:
        have = ", ".join(str(len(part)) for part in scores)
        raise DataError(
            f"{have} scores for the {', '.join(map(str, lengths))} words of '{known}'",
            where=where,
            remedy="`rss-rl data show` prints the words as the split has them",
        )
    return tuple(np.array(part, dtype=np.float64) for part in scores)

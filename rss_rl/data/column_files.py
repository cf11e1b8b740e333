"""Any CSV, TSV, JSON-lines or Parquet file with named columns as a source.

Splits without a file of their own are cut from the training files by a hash of the seed and the
text: copies of a text are in one split. A text of each class is for training, so that a rare class
is known there. A range of scores that is not given is that of all these rows.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from rss_rl.data.checks import LARGEST_SCORE, as_number, is_missing, text_key
from rss_rl.data.corpora.cuts import cut_texts
from rss_rl.data.shard import LEAST_WEIGHT
from rss_rl.data.sources import BadRow, Row, Source, Text
from rss_rl.data.tables import Record, column_names, read_records, require_columns
from rss_rl.durable import as_text
from rss_rl.errors import DataError
from rss_rl.types import Array, LabelSpec

SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class Columns:
    """Names of the columns: one or two texts, the label, and optionally the id, the weight and, per
    text, its rationale bits (which need lists of tokens as texts).
    """

    texts: tuple[str, ...]
    label: str
    id: str | None = None
    rationale: tuple[str, ...] = ()
    weight: str | None = None

    def all(self) -> tuple[str, ...]:
        """All names."""
        others = (name for name in (self.id, self.weight) if name)
        return (*self.texts, self.label, *others, *self.rationale)


def read_rows(paths: Iterable[Path], columns: Sequence[str]) -> Iterator[Record | BadRow]:
    """The rows of several files. columns: that matter."""
    for path in paths:
        yield from read_records(path, columns=columns)


def _read(
    split: str, *paths: Path, columns: Columns, cut: Sequence[str], drawn: Callable[[], Array]
) -> Iterator[Row]:
    """Stream one split.

    Args:
        cut: splits that are cut from the training files. drawn: the places there of their rows.
    """
    wanted = drawn() == cut.index(split) if split in cut else repeat(True)
    for here, record in zip(wanted, read_rows(paths, columns.all()), strict=False):
        if here:
            yield record if isinstance(record, BadRow) else _example(record, columns)


def draw_splits(
    paths: Sequence[Path], columns: Columns, shares: Mapping[str, float], seed: int, classes: bool
) -> Array:
    """The split of each row of the training files, see `cut_texts`.

    Args:
        shares: of the rows, for each split. classes: whether labels are classes.
    """
    keys, numbers, known = array("Q"), array("i"), dict[str, int]()
    for record in read_rows(paths, columns.all()):
        example = usable_row(record, columns)
        if isinstance(example, BadRow):
            keys.append(0)
            numbers.append(-1)
        else:
            keys.append(text_key(example.texts))
            label = str(example.label) if classes else ""
            numbers.append(known.setdefault(label, len(known)))
    return cut_texts(np.asarray(keys), np.asarray(numbers), shares, seed)


def usable_row(record: Record | BadRow, columns: Columns) -> Row:
    """The example of a row; a bad row if it can be none, as far as its columns tell."""
    example = record if isinstance(record, BadRow) else _example(record, columns)
    if isinstance(record, BadRow) or isinstance(example, BadRow):
        return example
    if is_missing(example.label):
        return record.bad("the label is missing", "Write one, or take the row out")
    for name, text in zip(columns.texts, example.texts, strict=True):
        if not (text.strip() if isinstance(text, str) else text):
            return record.bad(f"column '{name}' is empty", "Write the text, or take the row out")
    return example


def _example(record: Record, columns: Columns) -> Row:
    values = record.values
    # A missing label is reported by `LabelChecker`, as for any other source.
    wanted = [name for name in columns.all() if name not in (columns.label, *columns.rationale)]
    missing = [name for name in wanted if values.get(name) is None]
    if missing:
        return record.bad(f"column '{missing[0]}' is empty", "Fill it")
    label = values.get(columns.label)
    if isinstance(label, list | dict | bytes):
        what = f"column '{columns.label}' holds a {type(label).__name__}, which is no label"
        return record.bad(what, "Name a column with one class or number in each row")
    texts = tuple(_text(values[name]) for name in columns.texts)
    marks = [values.get(name) for name in columns.rationale]
    bits = tuple(_bits(value, text) for value, text in zip(marks, texts, strict=False))
    if None in texts:
        name = columns.texts[texts.index(None)]
        return record.bad(f"column '{name}' is neither text nor a list of words")
    if None in bits or (bits and any(isinstance(text, str) for text in texts)):
        return record.bad("a rationale is a list of 0 and 1 beside a list of words")
    weight = None
    if columns.weight:
        weight = math.nan
        with suppress(TypeError, ValueError, OverflowError):
            weight = as_number(values[columns.weight])
        if not LEAST_WEIGHT <= weight <= 1 / LEAST_WEIGHT:
            what = f"column '{columns.weight}': {values[columns.weight]!r:.40} is no weight"
            return record.bad(what, f"Give a number from {LEAST_WEIGHT:g} to {1 / LEAST_WEIGHT:g}")
    return record.example(
        str(values[columns.id])
        if columns.id
        else f"{as_text(Path(record.file).stem)}-{record.row}",
        tuple(text for text in texts if text is not None),
        _label(label),
        rationale=tuple(b for b in bits if b is not None) if bits else None,
        columns=(*columns.texts, columns.label),
        weight=weight,
    )


def _score_range(files: Sequence[Path], column: str) -> tuple[float, float]:
    """The least and the largest score of a column, without those that are no numbers."""
    low, high = math.inf, -math.inf
    for record in read_rows(files, [column]):
        with suppress(TypeError, ValueError, OverflowError):
            score = as_number(record.values[column]) if isinstance(record, Record) else math.nan
            if abs(score) <= LARGEST_SCORE:
                low, high = min(low, score), max(high, score)
    return low, high


def _text(value: Any) -> Text | None:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return tuple(value)
    return None


def _bits(value: Any, text: Text | None) -> tuple[bool, ...] | None:
    if value is None and isinstance(text, tuple):
        return (False,) * len(text)
    if isinstance(value, list) and all(bit in (0, 1) for bit in value):
        return tuple(bool(bit) for bit in value)
    return None


def _label(value: Any) -> str | float:
    if value is None:
        return ""
    return value if isinstance(value, float) else str(value).strip()


def column_files(
    train: Sequence[Path],
    columns: Columns,
    spec: LabelSpec | None = None,
    *,
    dev: Path | None = None,
    test: Path | None = None,
    shares: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
) -> Source:
    """A source of the rows of files.

    Args:
        train: files of the training split.
        columns: names of the columns.
        spec: what is predicted; None: classes named by the training labels; a score with an
            infinite range takes its range from the training files.
        dev, test: files of these splits; None: a share of the training files' rows.
        shares: of train, dev and test; those of splits with a file are ignored.
        seed: of the cut.

    Raises:
        DataError: a file or column is missing, or the shares are invalid.
    """
    if len(columns.texts) not in (1, 2) or len(columns.rationale) not in (0, len(columns.texts)):
        raise DataError("a table has one or two texts, and a rationale for each or none")
    if len(shares) != len(SPLITS) or not all(0 < share < math.inf for share in shares):
        raise DataError(
            f"shares {'/'.join(f'{share:g}' for share in shares)} do not cut train, dev and test",
            remedy="Give three numbers above 0, such as 0.8/0.1/0.1",
        )
    held_out = {"dev": dev, "test": test}
    files = {"train": tuple(train)}
    files |= {split: tuple(train) if path is None else (path,) for split, path in held_out.items()}
    for path in dict.fromkeys(path for paths in files.values() for path in paths):
        require_columns(path, column_names(path), columns.all())
    cut = {s: share for s, share in zip(SPLITS, shares, strict=True) if held_out.get(s) is None}
    cut = cut if len(cut) > 1 else {}
    classes = spec is None or spec.kind == "classes"
    if cut and spec is not None and spec.kind == "score" and math.isinf(spec.high):
        low, high = _score_range(train, columns.label)
        spec = LabelSpec("score", low=low, high=high) if low < high else spec
    drawn = cache(partial(draw_splits, train, columns, cut, seed, classes))
    reader = partial(_read, columns=columns, cut=tuple(cut), drawn=drawn)
    name, named = as_text(train[0].stem), (*columns.texts, columns.label)
    return Source(name, len(columns.texts), spec, files, reader, named)

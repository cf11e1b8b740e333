"""Files with one tokenised sentence per line: `<label> <word> <word> ...`.

Only ASCII white space separates words: some files have bytes of Windows-1252 that Unicode counts as
white space, among them 0x85, which is an ellipsis and does not end a line.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from rss_rl.data.sources import BadRow, RawExample, ReaderSource, Row, Words
from rss_rl.durable import disk_errors
from rss_rl.errors import DataError
from rss_rl.types import Array, LabelSpec

Reader = Callable[[str, Path], Iterator[Row]]
"""Streams the sentences of a file for a split."""
Keep = Callable[[str, int], Array]
"""A split and the number of lines of its file to bool [lines], True = in the split."""


def labelled_source(
    name: str,
    files: Mapping[str, tuple[Path, ...]],
    names: tuple[str, ...],
    reader: Reader,
    keep: Keep,
) -> ReaderSource:
    """A source of sentences with the classes `names`; splits may share a file."""
    labels = LabelSpec("classes", names=names)
    return ReaderSource(name, 1, labels, files, partial(_read, reader=reader, keep=keep))


def _read(split: str, path: Path, *, reader: Reader, keep: Keep) -> Iterator[Row]:
    kept = keep(split, count_lines(path))
    for row in reader(split, path):
        if kept[row.row - 1]:
            yield row


def class_of(classes: Mapping[str, str], label: str) -> str:
    """The class of a label of the file; an unknown label is returned unchanged."""
    return classes.get(label, label)


def all_lines(split: str, lines: int) -> Array:
    """A `Keep` for files with one split each: bool [lines], all True."""
    return np.ones(lines, dtype=bool)


def labelled_lines(
    split: str,
    path: Path,
    *,
    encoding: str,
    class_of: Callable[[str], str],
    empty_by_convention: bool = False,
) -> Iterator[Row]:
    """Stream `<label> <word> <word> ...` lines; empty lines are skipped.

    Args:
        encoding: one that uses the bytes of ASCII white space for nothing else.
        class_of: maps a label of the file to its class.
        empty_by_convention: a label without words is left out, and is not an error.
    """
    with path.open("rb") as stream:
        for row, raw in enumerate(stream, start=1):
            parts = (raw.removeprefix(codecs.BOM_UTF8) if row == 1 else raw).split()
            if not parts:
                continue
            try:
                label, *words = [part.decode(encoding) for part in parts]
            except UnicodeDecodeError:
                yield bad_line(path, row, raw, f"bytes that are not {encoding}")
                continue
            if words:
                yield sentence(path, row, class_of(label), Words(words))
            else:
                reason = "there are no words after the label"
                yield bad_line(path, row, raw, reason, by_convention=empty_by_convention)


def sentence(path: Path, row: int, label: str, words: Words, part: str = "") -> RawExample:
    """A sentence of a line; `part` distinguishes several of one line."""
    return RawExample(f"{path.name}-{row}{part}", (words,), label, file=str(path), row=row)


def bad_line(
    path: Path, row: int, raw: bytes, reason: str, *, by_convention: bool = False
) -> BadRow:
    """A line that cannot be used."""
    content = raw.decode("utf-8", "backslashreplace").rstrip("\r\n")
    return BadRow(
        str(path), row, reason, "Use the file as its authors give it", content, by_convention
    )


def count_lines(path: Path) -> int:
    """Number of lines of a file, including empty ones.

    Raises:
        DataError: it cannot be read.
    """
    with (
        disk_errors(path, "cannot be read", "Check the file", DataError),
        path.open("rb") as stream,
    ):
        return sum(1 for _ in stream)

"""Files with one tokenised sentence per line: `<label> <word> <word> ...`.

Only ASCII white space separates words: some files have bytes of Windows-1252 that Unicode counts as
white space, among them 0x85, which is an ellipsis and does not end a line.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from rss_rl.data.sources import BadRow, RawExample, ReaderSource, Words
from rss_rl.durable import disk_errors
from rss_rl.errors import DataError
from rss_rl.types import Array, LabelSpec


@dataclass(frozen=True)
class Line:
    """A sentence of a file; `part` distinguishes several of one line."""

    row: int
    label: str
    words: Words
    part: str = ""


Reader = Callable[[str, Path], Iterator[Line | BadRow]]
"""Streams the sentences of a file for a split."""


def labelled_source(
    name: str,
    files: Mapping[str, tuple[Path, ...]],
    names: tuple[str, ...],
    *,
    class_of: Callable[[str], str],
    reader: Reader,
    keep: Callable[[str, int], Array],
) -> ReaderSource:
    """A source of sentences with classes, from files of lines.

    Args:
        name: of the source.
        files: the file of each split; splits may share one.
        names: the classes.
        class_of: maps a label of the file to its class.
        reader: streams a file.
        keep: maps a split and the number of lines of its file to bool [lines], True = in the split.
    """
    labels = LabelSpec("classes", names=names)
    read = partial(_read, class_of=class_of, reader=reader, keep=keep)
    return ReaderSource(name, 1, labels, files, read)


def _read(
    split: str,
    path: Path,
    *,
    class_of: Callable[[str], str],
    reader: Reader,
    keep: Callable[[str, int], Array],
) -> Iterator[RawExample | BadRow]:
    kept = keep(split, count_lines(path))
    for line in reader(split, path):
        if not kept[line.row - 1]:
            continue
        if isinstance(line, BadRow):
            yield line
            continue
        yield RawExample(
            id=f"{path.name}-{line.row}{line.part}",
            texts=(line.words,),
            label=class_of(line.label),
            file=str(path),
            row=line.row,
        )


def class_of(classes: Mapping[str, str], label: str) -> str:
    """The class of a label of the file; an unknown label is returned unchanged."""
    return classes.get(label, label)


def all_lines(split: str, lines: int) -> Array:
    """A `keep` for files with one split each: bool [lines], all True."""
    return np.ones(lines, dtype=bool)


def labelled_lines(
    path: Path, encoding: str, *, empty_by_convention: bool = False
) -> Iterator[Line | BadRow]:
    """Stream `<label> <word> <word> ...` lines; empty lines are skipped.

    Args:
        path: the file. encoding: one that uses the bytes of ASCII white space for nothing else.
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
                yield Line(row, label, Words(words))
            else:
                reason = "there are no words after the label"
                yield bad_line(path, row, raw, reason, by_convention=empty_by_convention)


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

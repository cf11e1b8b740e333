"""Streaming the lines of GloVe text and word2vec binary files, which are told by their content."""

from __future__ import annotations

import codecs
import gzip
import re
from collections.abc import Container, Generator, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from rss_rl.data.sources import BadRow
from rss_rl.data.tables import bounded_lines, file_errors, is_gzip, is_too_long
from rss_rl.durable import check_file
from rss_rl.errors import DataError
from rss_rl.types import Array

_WORD_LIMIT = 10_000
"""Longest word2vec word in bytes; without a space within them, the file is not word2vec."""
_DIGITS = 18
"""Most digits of a header's number of words or vector width."""
_WIDEST = 1 << 20
LARGEST = 1e6
"""Of a component; a larger one is damage."""
_LOOKED_AT = 1 << 16
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")


class VectorLine(NamedTuple):
    """A wanted word and its vector, float32 [e]."""

    word: str
    vector: Array


def vector_lines(
    path: Path, wanted: Container[str]
) -> Generator[VectorLine | BadRow | None, None, None]:
    """Stream a file of vectors: wanted words, bad lines, and None for each word not wanted.

    Raises:
        DataError: the file cannot be opened or read on.
    """
    with file_errors(path):
        check_file(path)
        opened: Any = gzip.open if is_gzip(path) else open
        with opened(path, "rb") as stream:
            binary = _is_binary(stream.read(_LOOKED_AT))
            stream.seek(0)
            yield from (_binary_lines if binary else _text_lines)(path, stream, wanted)


def _is_binary(head: bytes) -> bool:
    """Whether a file that begins so is binary: numbers of 32 bits are no text for long."""
    header, _, rest = head.partition(b"\n")
    if not _is_header(header):
        return b"\0" in head
    line, end, _ = rest.partition(b"\n")
    numbers = line.split()[1:] if end else []
    if numbers and all(map(_is_number, numbers)):
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(rest)
    except UnicodeDecodeError:
        return True
    return _CONTROL.search(rest) is not None


def _text_lines(
    path: Path, stream: IO[bytes], wanted: Container[str]
) -> Iterator[VectorLine | BadRow | None]:
    dim = 0
    for row, line in enumerate(bounded_lines(stream), start=1):
        text = line.rstrip(b" \r\n")
        text = text.removeprefix(codecs.BOM_UTF8) if row == 1 else text
        if row == 1 and _is_header(text):  # "words width", as word2vec and fastText write text
            dim = int(text.split()[1])
            continue
        spaces = text.count(b" ")
        dim = dim or spaces
        if not text:
            continue
        if is_too_long(line):
            yield _bad(path, row, "the line is too long", text)
            continue
        parts = text.rsplit(b" ", dim)
        # A word may contain spaces, as '. . .' does, but no number.
        if spaces < dim or dim < 1 or (spaces > dim and _is_number(parts[0].split(b" ")[-1])):
            expected = dim or "one or more"
            yield _bad(path, row, f"{spaces} numbers where {expected} are expected", text)
            continue
        word = parts[0].decode("utf-8", "surrogateescape")
        if word not in wanted:
            yield None
            continue
        yield _parsed(path, row, word, parts[1:], text)


def _parsed(
    path: Path, row: int, word: str, numbers: list[bytes], text: bytes
) -> VectorLine | BadRow:
    try:
        with np.errstate(over="ignore"):  # checked below
            vector = np.array(numbers, dtype="S").astype(np.float32)
    except ValueError:
        return _bad(path, row, "a component is not a number", text)
    if fault := _fault(vector):
        return _bad(path, row, f"a component {fault}", text)
    return VectorLine(word, vector)


def _fault(vector: Array) -> str:
    """What is wrong with a vector of a file; empty if nothing is."""
    if not np.isfinite(vector).all():
        return "is not finite"
    return f"is beyond {LARGEST:g}" if np.abs(vector).max(initial=0) > LARGEST else ""


def _is_header(text: bytes) -> bool:
    parts = text.split()
    return len(parts) == 2 and all(part.isdigit() and len(part) <= _DIGITS for part in parts)


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _bad(path: Path, row: int, reason: str, text: bytes) -> BadRow:
    content = text[:200].decode("utf-8", "backslashreplace")
    remedy = "Fetch the file again"
    if b"\t" in text or b"  " in text:
        remedy = "Separate the word and each number by one space"
    return BadRow(str(path), row, reason, remedy, content)


def _binary_lines(
    path: Path, stream: IO[bytes], wanted: Container[str]
) -> Iterator[VectorLine | BadRow | None]:
    header = stream.readline(_WORD_LIMIT).strip()
    if not _is_header(header):
        raise DataError(
            "does not begin with the number of words and their width",
            where=f"{path}, row 1",
            remedy="Give word2vec's binary files or text, and fastText's .vec in place of its .bin",
        )
    words, dim = (int(part) for part in header.split())
    if dim > _WIDEST:
        raise DataError(
            f"says that a vector has {dim} numbers",
            where=f"{path}, row 1",
            remedy="The file is damaged: fetch it again",
        )
    for row in range(1, words + 1):
        word = _binary_word(stream)
        packed = stream.read(4 * dim) if word is not None else b""
        if word is None or len(packed) < 4 * dim:
            raise DataError(
                f"ends within vector {row} of {words}",
                where=str(path),
                remedy="The file is cut short: fetch it again",
            )
        text = word.decode("utf-8", "surrogateescape")
        if text not in wanted:
            yield None
            continue
        vector = np.frombuffer(packed, dtype="<f4").astype(np.float32)
        if fault := _fault(vector):
            yield _bad(path, row, f"the vector of '{text}' {fault}", word)
        else:
            yield VectorLine(text, vector)


def _binary_word(stream: IO[bytes]) -> bytes | None:
    word = bytearray()
    while len(word) < _WORD_LIMIT:
        sign = stream.read(1)
        if sign == b" ":
            return bytes(word).lstrip(b"\n")
        if not sign:
            return None
        word += sign
    return None

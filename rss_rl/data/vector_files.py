"""Streaming the lines of GloVe text and word2vec binary files."""

from __future__ import annotations

import codecs
import gzip
import io
import zipfile
import zlib
from collections.abc import Container, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, NamedTuple, cast

import numpy as np

from rss_rl.data.encoder_vectors import find_encoder, is_encoder
from rss_rl.data.sources import BadRow
from rss_rl.data.static_vectors import find_static, is_static
from rss_rl.durable import check_file
from rss_rl.errors import DataError
from rss_rl.types import Array

_WORD_LIMIT = 10_000
"""Longest word2vec word in bytes; without a space within them, the file is not word2vec."""
_DIGITS = 18
"""Most digits of a header's number of words or vector width."""
_WIDEST = 1 << 20


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
    try:
        with _open(path) as stream:
            binary = path.name.removesuffix(".gz").endswith(".bin")
            yield from (_binary_lines if binary else _text_lines)(path, stream, wanted)
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        damaged = "It is cut short or damaged: fetch it again"
        refusal = error.strerror if isinstance(error, OSError) else None
        raise DataError(
            f"cannot be read ({refusal or error})",
            where=str(path),
            remedy="Check the path" if refusal else damaged,
        ) from error


def check_vectors(path: Path, *, skip_bad_rows: bool = False) -> None:
    """Check that a file can be opened and begins like a file of vectors.

    Raises:
        DataError: it does not.
        ConfigError: it names an encoder that cannot be used.
    """
    if is_encoder(path):
        find_encoder(path)
        return
    if is_static(path):
        find_static(path)
        return
    with closing(vector_lines(path, ())) as lines:
        try:
            first = next(lines)
        except StopIteration:
            raise DataError("is empty", where=str(path), remedy="Fetch the file again") from None
    if isinstance(first, BadRow) and not skip_bad_rows:
        raise first.error()


def names_a_file(path: Path) -> bool:
    """Whether vectors are named by their file, not by a package or an encoder."""
    return not (is_static(path) or is_encoder(path))


def file_on_disk(path: Path) -> Path:
    """The file itself, or the archive where `path` is ARCHIVE.zip:MEMBER.

    >>> file_on_disk(Path("glove.6B.zip:glove.6B.300d.txt")).name
    'glove.6B.zip'
    """
    if is_encoder(path):
        return find_encoder(path)[0]
    if is_static(path):
        return find_static(path).matrix
    return _parts(path)[0]


def _parts(path: Path) -> tuple[Path, str]:
    """The file on the disk, and its member that `path` names; "" for none."""
    archive, _, member = str(path).partition(".zip:")
    return (Path(f"{archive}.zip"), member) if member else (path, "")


@contextmanager
def _open(path: Path) -> Iterator[IO[bytes]]:
    file, member = _parts(path)
    check_file(file)
    if file.suffix == ".zip":
        with zipfile.ZipFile(file) as package, package.open(_member(package, file, member)) as text:
            yield io.BufferedReader(cast(io.RawIOBase, text))
    elif path.suffix == ".gz":
        with gzip.open(path, "rb") as packed:
            yield cast(IO[bytes], packed)
    else:
        with path.open("rb") as plain:
            yield plain


def _member(package: zipfile.ZipFile, file: Path, member: str) -> str:
    names = [name for name in package.namelist() if not name.endswith("/")]
    if member in names:
        return member
    if not member and len(names) == 1:
        return names[0]
    raise DataError(
        f"has no file '{member}'" if member else f"holds {len(names)} files",
        where=str(file),
        remedy=f"Name one as {file}:FILE; it has: {', '.join(sorted(names)[:20])}",
    )


def _text_lines(
    path: Path, stream: IO[bytes], wanted: Container[str]
) -> Iterator[VectorLine | BadRow | None]:
    dim = 0
    for row, line in enumerate(stream, start=1):
        text = line.rstrip(b" \r\n")
        text = text.removeprefix(codecs.BOM_UTF8) if row == 1 else text
        if row == 1 and _is_header(text):  # "words width", as word2vec and fastText write text
            dim = int(text.split()[1])
            continue
        spaces = text.count(b" ")
        dim = dim or spaces
        if not text:
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
    if not np.isfinite(vector).all():
        return _bad(path, row, "a component is not finite", text)
    return VectorLine(word, vector)


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
    remedy = "Fetch the file again; word2vec binary files must end in .bin"
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
            remedy="Files ending in .bin are read as word2vec binary: rename text .txt, and give"
            " fastText's .vec in place of its .bin",
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
        if np.isfinite(vector).all():
            yield VectorLine(text, vector)
        else:
            yield _bad(path, row, f"the vector of '{text}' is not finite", word)


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

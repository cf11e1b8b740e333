"""Word vectors from GloVe text, word2vec binary files, subword vectors and encoders, concatenated.

Legend: V words of the vocabulary, E width of all files together, e width of one file.

Files are streamed and only the vectors of wanted words are kept. A word is looked up as it is, then
in lower case, Capitalised and in UPPER case, so that a cased file serves an uncased vocabulary.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from rss_rl.data.checks import Rejects
from rss_rl.data.label_weights import LabelWeights
from rss_rl.data.manifest import (
    HELD_OUT_FILE,
    SUBWORDS_FILE,
    VECTORS_FILE,
    Coverage,
    SourceFile,
    VectorInfo,
    file_info,
)
from rss_rl.data.pretrained_vectors import (
    ENCODER,
    STATIC,
    encoder_vectors,
    find_encoder,
    find_static,
    is_encoder,
    is_static,
    static_vectors,
)
from rss_rl.data.sources import BadRow, Progress
from rss_rl.data.vector_files import LARGEST, VectorLine, vector_lines
from rss_rl.data.vocabulary import PAD, SPECIAL_WORDS, Vocabulary
from rss_rl.durable import disk_errors, file_sha256
from rss_rl.errors import DataError
from rss_rl.seeding import generator
from rss_rl.types import Array

_MISSING_SHOWN = 20
_LEAST = 1e-6
"""Of the largest component of a file: squares of smaller ones are lost in 32 bits."""


def write_vectors(
    folder: Path,
    files: Sequence[Path],
    vocabulary: Vocabulary,
    counts: Counter[str],
    rejects: Rejects,
    progress: Progress,
    *,
    dim: int,
    seed: int,
    weights: LabelWeights | None = None,
) -> VectorInfo:
    """Write vectors.safetensors into `folder`: "vectors", float32 [V, E].

    With label weights also subwords.safetensors: "weights", float32 [G, C], and
    held_out.safetensors: "changes", float32 [F, V, 2 C], V the words of the training texts.

    Args:
        files: of word vectors, concatenated; none: random vectors of width `dim`.
        counts: of the words of all splits.
        rejects: takes the lines that cannot be used.
        seed: of the random vectors of words that no file has.
        weights: of labels, for further columns.

    Raises:
        DataError: a file that cannot be used.
    """
    if not files:
        return VectorInfo(**_save(folder, random_vectors(vocabulary, dim, seed), weights, _SPREAD))
    parts = [_read_file(path, vocabulary, rejects, progress) for path in files]
    scales = vector_scales(parts)
    spread = _WEIGHT * float(parts[0].vectors[parts[0].known].std())
    table = vector_table(parts, vocabulary, seed, scales)
    often = np.array([counts[word] for word in vocabulary.words], dtype=np.float64)  # [V]
    known = np.any([part.known for part in parts], axis=0)  # [V]
    lacking = np.flatnonzero(~known)[len(SPECIAL_WORDS) :]
    commonest = lacking[np.argsort(-often[lacking], kind="stable")]
    return VectorInfo(
        **_save(folder, table, weights, spread),
        files=tuple(source_file(path) for path in files),
        widths=tuple(part.vectors.shape[1] for part in parts),
        coverage=tuple(_coverage(part.known, often) for part in parts),
        any=_coverage(known, often),
        missing=tuple(vocabulary.words[i] for i in commonest[:_MISSING_SHOWN].tolist()),
    )


def _save(
    folder: Path, table: Array, weights: LabelWeights | None, spread: float
) -> dict[str, Any]:
    """Write the vectors [V, E] with the weights, if any, beside them, at a standard deviation.

    Returns:
        What the manifest says of them and of their files.
    """
    if weights is None:
        return {"dim": table.shape[1], **_written(folder / VECTORS_FILE, {"vectors": table})}
    scaled = weights.spread_to(spread)
    table = np.concatenate([table, scaled.words], axis=1)
    return {
        "dim": table.shape[1],
        "label_weights": scaled.words.shape[1],
        "subwords": _written(folder / SUBWORDS_FILE, {"weights": scaled.subwords}),
        "held_out": _written(folder / HELD_OUT_FILE, {"changes": scaled.held_out}),
        **_written(folder / VECTORS_FILE, {"vectors": table}),
    }


def _written(path: Path, arrays: dict[str, Array]) -> dict[str, Any]:
    """Write a file; returns `file_info`."""
    try:
        save_file(arrays, path)
    except SafetensorError as error:  # also raised for errors of the disk
        raise OSError(str(error)) from error
    return file_info(path)


def _read_file(
    path: Path, vocabulary: Vocabulary, rejects: Rejects, progress: Progress
) -> FileVectors:
    def reject(line: BadRow) -> None:
        rejects.take(line, "vectors")

    what = f"reading {path.name}"
    part = read_vectors(path, vocabulary, reject, lambda lines: progress(what, lines, None))
    progress(what, part.lines, part.lines)
    largest = float(np.abs(part.vectors[part.known]).max(initial=0))
    if largest and not _LEAST <= largest <= LARGEST:
        raise DataError(
            f"the largest number of its vectors is {largest:.1g}",
            where=str(path),
            remedy=f"Scale the vectors: word vectors have numbers of {_LEAST:g} to {LARGEST:g}",
        )
    return part


def _coverage(known: Array, weights: Array) -> Coverage:
    words, tokens = max(1, len(known) - len(SPECIAL_WORDS)), max(1.0, float(weights.sum()))
    return Coverage(words=int(known.sum()) / words, tokens=float(weights[known].sum()) / tokens)


def check_vectors(path: Path, *, skip_bad_rows: bool = False) -> None:
    """Check that a file can be opened and begins like a file of vectors.

    Raises:
        DataError: it does not.
        ConfigError: it names an encoder that cannot be used.
    """
    if is_encoder(path):
        find_encoder(path)
    elif is_static(path):
        find_static(path)
    else:
        with closing(vector_lines(path, ())) as lines:
            try:
                first = next(lines)
            except StopIteration:
                remedy = "Fetch the file again"
                raise DataError("is empty", where=str(path), remedy=remedy) from None
        if isinstance(first, BadRow) and not skip_bad_rows:
            raise first.error()


def source_file(path: Path) -> SourceFile:
    """Name and SHA-256 of a file that is read.

    For a folder, the SHA-256 of its files' names and SHA-256, in the order of names.

    Raises:
        DataError: it cannot be read.
    """
    if is_encoder(path):
        name = Path(str(path).removeprefix(ENCODER)).name
        return SourceFile(name=f"{ENCODER}{name}", sha256=find_encoder(path)[1])
    if is_static(path):
        matrix, _, tokenizer = find_static(path)
        folder = os.path.abspath(Path(str(path).removeprefix(STATIC)).expanduser())
        name = f"{STATIC}{Path(folder).name}"
        return _joined(name, (source_file(matrix), source_file(tokenizer)))
    if path.is_dir():
        parts = (source_file(file) for file in sorted(path.iterdir()) if file.is_file())
        return _joined(path.name, parts)
    with disk_errors(path, "cannot be read", "Check the path", DataError):
        return SourceFile(name=path.name, sha256=file_sha256(path))


def _joined(name: str, parts: Iterable[SourceFile]) -> SourceFile:
    lines = hashlib.sha256()
    for part in parts:
        lines.update(f"{part.sha256}  {part.name}\n".encode("utf-8", "surrogateescape"))
    return SourceFile(name=name, sha256=lines.hexdigest())


_SPREAD = 1.2
"""Standard deviation of label weights beside random vectors: three times that of GloVe's."""
_WEIGHT = 3.0
"""The same beside the vectors of files, as a multiple of theirs."""
_RANGE = 0.05
"""Words without a vector are drawn from U(-0.05, 0.05)."""
_REPORT_LINES = 10_000


@dataclass(frozen=True)
class FileVectors:
    """One file's vectors for a vocabulary.

    vectors  float32 [V, e], zeros where the file has none
    known    bool [V]
    lines    lines of the file, or pieces that have a vector
    """

    vectors: Array
    known: Array
    lines: int


def read_vectors(
    path: Path,
    vocabulary: Vocabulary,
    on_bad: Callable[[BadRow], None],
    progress: Callable[[int], None] = lambda lines: None,
) -> FileVectors:
    """Read the vectors of the words of `vocabulary` from one file.

    Args:
        path: GloVe text or word2vec binary (plain or .gz),
            `static:FOLDER_OR_PACKAGE`, or `encoder:FOLDER_OR_NAME`.
        vocabulary: the wanted words.
        on_bad: called with each line that cannot be used; may raise.
        progress: called periodically with the number of lines read.

    Raises:
        DataError: the file cannot be read, or has no vector for any of the words.
    """
    if is_encoder(path):
        part = FileVectors(*encoder_vectors(path, vocabulary, progress))
    elif is_static(path):
        part = FileVectors(*static_vectors(path, vocabulary))
    else:
        part = _read_lines(path, vocabulary, on_bad, progress)
    if not part.known.any():
        remedy = "Check the file, the model and its language"
        raise DataError("has no vector for any word of the data", where=str(path), remedy=remedy)
    return part


def _read_lines(
    path: Path,
    vocabulary: Vocabulary,
    on_bad: Callable[[BadRow], None],
    progress: Callable[[int], None],
) -> FileVectors:
    wanted = _spellings(vocabulary)
    best = np.full(len(vocabulary), len(_FORMS), dtype=np.int8)  # [V] rank of the spelling
    vectors = np.zeros((len(vocabulary), 0), dtype=np.float32)
    lines = 0
    for line in vector_lines(path, wanted):
        lines += 1
        if lines % _REPORT_LINES == 0:
            progress(lines)
        if isinstance(line, BadRow):
            on_bad(line)
        elif isinstance(line, VectorLine):
            if not vectors.shape[1]:
                vectors = np.zeros((len(vocabulary), len(line.vector)), dtype=np.float32)
            for rank, word_id in wanted[line.word]:
                if rank < best[word_id]:
                    best[word_id] = rank
                    vectors[word_id] = line.vector
    return FileVectors(vectors, best < len(_FORMS), lines)


_FORMS: tuple[Callable[[str], str], ...] = (str, str.lower, str.capitalize, str.upper)


def _spellings(vocabulary: Vocabulary) -> dict[str, list[tuple[int, int]]]:
    """For each spelling to look for, (rank, id) of the words it serves; rank 0: the word itself."""
    wanted: dict[str, list[tuple[int, int]]] = {}
    for word_id, word in enumerate(vocabulary.words):
        if word_id < len(SPECIAL_WORDS):
            continue
        for rank, form in enumerate(_FORMS):
            wanted.setdefault(form(word), []).append((rank, word_id))
    return wanted


def vector_scales(parts: Sequence[FileVectors]) -> tuple[float, ...]:
    """Factors that scale every file's vectors to the standard deviation of the first file's.

    Files differ (word2vec's vectors often have unit length, GloVe's are ten times longer), but all
    features of a word share one learning rate and initialisation.
    """
    spreads = [float(part.vectors[part.known].std()) for part in parts]
    return tuple(spreads[0] / spread if spread > 0 else 1.0 for spread in spreads)


def vector_table(
    parts: Sequence[FileVectors], vocabulary: Vocabulary, seed: int, scales: Sequence[float]
) -> Array:
    """All files concatenated, each times its scale, float32 [V, E]; missing parts are random."""
    table = random_vectors(vocabulary, sum(part.vectors.shape[1] for part in parts), seed)
    start = 0
    for part, scale in zip(parts, scales, strict=True):
        width = part.vectors.shape[1]
        table[part.known, start : start + width] = part.vectors[part.known] * np.float32(scale)
        start += width
    return table


def random_vectors(vocabulary: Vocabulary, dim: int, seed: int) -> Array:
    """U(-0.05, 0.05) for each word, zeros for padding, float32 [V, dim].

    A word's vector depends on the seed and the word alone, not on the words around it.
    """
    table = np.empty((len(vocabulary), dim), dtype=np.float32)
    for word_id, word in enumerate(vocabulary.words):
        table[word_id] = generator(seed, "vector", word).uniform(-_RANGE, _RANGE, dim)
    table[PAD] = 0.0
    return table

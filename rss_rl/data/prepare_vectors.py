"""The vectors of a prepared dataset: from files or random, and what the manifest says of them."""

from __future__ import annotations

__all__ = ["source_file", "write_vectors"]

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from rss_rl.data.checks import Rejects
from rss_rl.data.manifest import VECTORS_FILE, Coverage, SourceFile, VectorInfo
from rss_rl.data.sources import BadRow
from rss_rl.data.staging import Progress
from rss_rl.data.vectors import (
    FileVectors,
    random_vectors,
    read_vectors,
    vector_scales,
    vector_table,
)
from rss_rl.data.vocabulary import SPECIAL_WORDS, Vocabulary
from rss_rl.durable import file_sha256
from rss_rl.errors import DataError
from rss_rl.types import Array

_MISSING_SHOWN = 20


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
) -> VectorInfo:
    """Write vectors.safetensors into `folder`: "vectors", float32 [V, E].

    Args:
        files: of word vectors, put side by side; none: random vectors of width `dim`.
        counts: of the words of all splits.
        rejects: takes the lines that cannot be used.
        seed: of the vectors of words that have none.

    Raises:
        DataError: a file that cannot be used.
    """
    if not files:
        table = random_vectors(vocabulary, dim, seed)
        return VectorInfo(dim=dim, **_save(folder, table))
    parts = [_read_file(path, vocabulary, rejects, progress) for path in files]
    scales = vector_scales(parts)
    table = vector_table(parts, vocabulary, seed, scales)
    weights = np.array([counts[word] for word in vocabulary.words], dtype=np.float64)  # [V]
    found = np.any([part.found for part in parts], axis=0)  # [V]
    lacking = np.flatnonzero(~found)[len(SPECIAL_WORDS) :]
    commonest = lacking[np.argsort(-weights[lacking], kind="stable")]
    return VectorInfo(
        dim=table.shape[1],
        **_save(folder, table),
        files=tuple(source_file(path) for path in files),
        widths=tuple(part.vectors.shape[1] for part in parts),
        scales=scales,
        coverage=tuple(_coverage(part.found, weights) for part in parts),
        any=_coverage(found, weights),
        missing=vocabulary.look_up(commonest[:_MISSING_SHOWN]),
        bad_lines=rejects.bad["vectors"],
    )


def _save(folder: Path, table: Array) -> dict[str, Any]:
    """Write the table of vectors; returns size and SHA-256 as `VectorInfo` has them."""
    path = folder / VECTORS_FILE
    try:
        save_file({"vectors": table}, path)
    except SafetensorError as error:  # which the disk's refusal comes as
        raise OSError(str(error)) from error
    return {"bytes": path.stat().st_size, "sha256": file_sha256(path)}


def _read_file(
    path: Path, vocabulary: Vocabulary, rejects: Rejects, progress: Progress
) -> FileVectors:
    def reject(line: BadRow) -> None:
        rejects.take(line, "vectors")

    what = f"reading {path.name}"
    part = read_vectors(path, vocabulary, reject, lambda lines: progress(what, lines, None))
    progress(what, part.lines, part.lines)
    return part


def _coverage(found: Array, weights: Array) -> Coverage:
    words, tokens = max(1, len(found) - len(SPECIAL_WORDS)), max(1.0, float(weights.sum()))
    return Coverage(words=int(found.sum()) / words, tokens=float(weights[found].sum()) / tokens)


def source_file(path: Path) -> SourceFile:
    """Name and SHA-256 of a file that was read; of ARCHIVE.zip:MEMBER the archive's.

    Of a folder the SHA-256 of the names and SHA-256 of its files, in the order of names.

    Raises:
        DataError: it cannot be read.
    """
    if path.is_dir():
        parts = (source_file(file) for file in sorted(path.iterdir()) if file.is_file())
        lines = hashlib.sha256()
        for part in parts:
            lines.update(f"{part.sha256}  {part.name}\n".encode("utf-8", "surrogateescape"))
        return SourceFile(name=path.name, sha256=lines.hexdigest())
    archive = str(path).partition(".zip:")
    file = Path(f"{archive[0]}.zip") if archive[2] else path
    try:
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(
            f"cannot be read again ({error.strerror})",
            where=str(file),
            remedy="Leave the files alone while they are prepared",
        ) from error
    return SourceFile(name=path.name, sha256=digest)

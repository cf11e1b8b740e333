"""Reading prepared data: shards are mapped at first use, and only padded batches are copied.

Legend: B examples of a batch, S sentence slots, N_s longest sentence of slot s.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from safetensors import SafetensorError
from safetensors.numpy import load_file

from rss_rl.data import manifest as records
from rss_rl.data.batch_order import WINDOW_SHARDS
from rss_rl.data.locations import LocalFiles, open_files
from rss_rl.data.manifest import Manifest
from rss_rl.data.shard import Shard, StoredRow
from rss_rl.data.states import Encoding, StatesInfo, StatesReader, open_states
from rss_rl.data.tokens import Tokenizer
from rss_rl.data.vocabulary import PAD, Vocabulary
from rss_rl.errors import DataError, nearest
from rss_rl.types import Array, Batch, LabelSpec, Window

OPEN_SHARDS = 2 * WINDOW_SHARDS
"""Shards of a split that stay mapped: two windows of `rss_rl.data.batch_order`."""


class Split:
    """One split of a prepared dataset, an `ExampleSource`. Pickles by location, and is reopened.

    Memory does not grow with the data: at most OPEN_SHARDS shards stay mapped, and only what
    `lengths()` or `batch` return is copied. A shard is fetched (from a URI) and checked at its
    first use, so every method that reads one may raise DataError or StorageError.

    Args:
        files: of the dataset.
        name: 'train', 'dev', 'test'.
        manifest: of the dataset.
        states: of its tokens, which batches then have; None: batches have none.
    """

    def __init__(
        self, files: LocalFiles, name: str, manifest: Manifest, states: StatesInfo | None = None
    ) -> None:
        self._states_info = states
        self._states = states and StatesReader(files, states, name, manifest.sentences)
        self.name = name
        self._files, self._manifest, self._info = files, manifest, manifest.splits[name]
        self._starts = np.cumsum([0, *self.shard_rows], dtype=np.int64)  # [shards + 1]
        self._shard = lru_cache(OPEN_SHARDS)(self._map)
        self._checked: set[int] = set()

    def __reduce__(self) -> tuple[object, ...]:
        return (Split, (self._files, self.name, self._manifest, self._states_info))

    @property
    def labels(self) -> LabelSpec:
        """What is predicted."""
        return self._manifest.labels

    @property
    def sentences(self) -> int:
        """Sentence slots an example has, 1 or 2."""
        return self._manifest.sentences

    @property
    def shard_rows(self) -> tuple[int, ...]:
        """Rows of each shard, in the order of row numbers."""
        return tuple(shard.rows for shard in self._info.shards)

    def __len__(self) -> int:
        return self._info.rows

    def lengths(self, rows: Sequence[int] | Array | None = None) -> Array:
        """int64 [len(rows), S], real tokens of each sentence (read-only); None: of all rows."""
        rows = np.arange(len(self)) if rows is None else self._in_range(rows)
        lengths = np.empty((len(rows), self.sentences), dtype=np.int64)
        owners = self._owners(rows)
        for number in np.unique(owners).tolist():
            mine = owners == number
            lengths[mine] = self._shard(number).lengths(rows[mine] - self._starts[number])
        lengths.setflags(write=False)
        return lengths

    def batch(self, rows: Sequence[int] | Array) -> Batch:
        """The examples of `rows`, each slot padded to its own longest sentence.

        Raises:
            DataError: a row out of range, or a damaged shard.
        """
        rows = self._in_range(rows)
        stored = self._rows(rows)
        tokens, valid, rationale = [], [], []
        for slot in range(self.sentences):
            parts = [row.tokens[slot] for row in stored]
            lengths = np.array([len(part) for part in parts], dtype=np.int64)  # [B]
            keep = np.arange(lengths.max(initial=0)) < lengths[:, None]  # [B, N]
            bits = np.zeros(keep.shape, dtype=bool)  # [B, N]
            if parts and self._info.rationale:
                # Arrow packs bits, so this column alone is not a view.
                bits[keep] = pa.chunked_array([row.rationale[slot] for row in stored]).to_numpy()
            tokens.append(_padded(parts, keep, PAD))
            valid.append(keep)
            rationale.append(bits)
        kind = np.float32 if self.labels.kind == "score" else np.int64
        labels = np.array([row.label for row in stored], dtype=kind)
        known = tuple(rationale) if self._info.rationale else None
        numbers = [row.question for row in stored]
        questions = np.array(numbers, dtype=np.int64) if self._info.questions else None
        marks = people = None
        if self._info.marks:
            marks = _padded([row.marks for row in stored], valid[0], -1)
        if self._info.annotations:
            people = _padded([row.annotations for row in stored], valid[0], 0)
        states = self._states.padded(rows, valid) if self._states else None
        return Batch(
            rows, tuple(tokens), tuple(valid), labels, known, marks, questions, people, states
        )

    def words(self, row: int) -> tuple[tuple[str, ...], ...]:
        """The words of each sentence of a row, as they were written."""
        shard, inside = self._at(row)
        return shard.words(inside)

    def example_id(self, row: int) -> str:
        """The id that the source gave a row."""
        shard, inside = self._at(row)
        return shard.example_id(inside)

    def _at(self, row: int) -> tuple[Shard, int]:
        """The shard of a row, and its number there."""
        number = int(self._owners(self._in_range([row]))[0])
        return self._shard(number), row - int(self._starts[number])

    def _rows(self, rows: Array) -> list[StoredRow]:
        owners = self._owners(rows)
        shards = {number: self._shard(number) for number in np.unique(owners).tolist()}
        inside = (rows - self._starts[owners]).tolist()
        return [shards[n].row(i) for n, i in zip(owners.tolist(), inside, strict=True)]

    def _in_range(self, rows: Sequence[int] | Array) -> Array:
        rows = np.asarray(rows, dtype=np.int64)
        if len(rows) and (rows.min() < 0 or rows.max() >= len(self)):
            raise DataError(
                f"rows {rows.min()} to {rows.max()} were requested, the {self.name} split has "
                f"{len(self)}",
                where=self._files.location,
            )
        return rows

    def _owners(self, rows: Array) -> Array:
        """Shard of each row."""
        return np.searchsorted(self._starts, rows, side="right") - 1

    def _map(self, number: int) -> Shard:
        info = self._info.shards[number]
        path = self._files.fetch(info.name, info.bytes, info.sha256)
        trusted = number in self._checked
        try:
            shard = Shard(path, self._manifest, self._info, info.rows, trusted=trusted)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise self._files.damaged(info.name, str(error).splitlines()[0]) from error
        self._checked.add(number)
        return shard


def _padded(parts: Sequence[Array | None], valid: Array, fill: int) -> Array:
    """int64 [B, N], the values of each row's part, and `fill` where `valid` [B, N] is False."""
    padded = np.full(valid.shape, fill, dtype=np.int64)
    known = [part for part in parts if part is not None]
    if known:
        padded[valid] = np.concatenate(known)
    return padded


class Prepared:
    """A prepared dataset.

    Args:
        files: of the dataset.
        states: of its tokens, which batches then have; see `with_states`.
    """

    def __init__(self, files: LocalFiles, states: StatesInfo | None = None) -> None:
        self._files, self._states = files, states
        self.manifest = files.manifest()

    def with_states(
        self, encoder: str, digest: str, layers: int | None = None, window: Window = "text"
    ) -> Prepared:
        """The same dataset with an encoder's states of its tokens.

        Raises:
            DataError: see `open_states`.
        """
        rows = {name: split.rows for name, split in self.manifest.splits.items()}
        asked = Encoding(encoder, digest, layers, window)
        return Prepared(self._files, open_states(self._files, asked, rows))

    def states(self) -> StatesInfo | None:
        """Those of its batches, see `with_states`; None: they have none."""
        return self._states

    def states_digest(self) -> str | None:
        """SHA-256 that identifies the states of batches; None where they have none."""
        if self._states is None:
            return None
        content = self._states.model_dump_json(exclude_none=True)  # as before layers and windows
        return hashlib.sha256(content.encode()).hexdigest()

    @property
    def location(self) -> str:
        """Argument for `open_prepared` in any process: an absolute path or a URI."""
        return self._files.location

    @property
    def folder(self) -> Path:
        """The local directory with its manifest, vocabulary and vectors."""
        return self._files.folder

    @property
    def labels(self) -> LabelSpec:
        """What is predicted."""
        return self.manifest.labels

    @property
    def sentences(self) -> int:
        """Sentence slots an example has, 1 or 2."""
        return self.manifest.sentences

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Words and their ids."""
        info = self.manifest.vocabulary
        path = self._files.fetch(records.VOCABULARY_FILE, info.bytes, info.sha256)
        try:
            return Vocabulary.load(path, info.size, info.trainable)
        except DataError as error:
            raise self._files.damaged(records.VOCABULARY_FILE, error.what) from error

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer the data was prepared with, for new text."""
        return Tokenizer(self.manifest.tokenizer.lower)

    def vectors(self) -> Array:
        """float32 [V, E], the vector of each word.

        Raises:
            DataError: the file is missing, damaged, or of another shape.
        """
        name, info = records.VECTORS_FILE, self.manifest.vectors
        path = self._files.fetch(name, info.bytes, info.sha256)
        try:
            vectors: Array = load_file(path)["vectors"]
        except (OSError, KeyError, TypeError, ValueError, SafetensorError) as error:
            raise self._files.damaged(name, f"cannot be read ({error})") from error
        shape = (self.manifest.vocabulary.size, info.dim)
        if vectors.shape != shape or vectors.dtype != np.float32:
            what = f"has shape {vectors.shape}, not {shape}, or other numbers than float32"
            raise self._files.damaged(name, what)
        if not np.isfinite(vectors).all():
            raise self._files.damaged(name, "holds numbers that are not finite")
        return vectors

    def check(self) -> None:
        """Read the vocabulary, verify the vectors and states, and check that each shard exists.

        Raises:
            DataError: a file is missing or damaged. StorageError: no answer.
        """
        self._files.check(
            {s.name: s.bytes for i in self.manifest.splits.values() for s in i.shards}
        )
        info = self.manifest.vectors
        _ = self.vocabulary, self._files.fetch(records.VECTORS_FILE, info.bytes, info.sha256)
        if self._states is not None:
            self._states.check(self._files)

    def split(self, name: str) -> Split:
        """A split by name, without opening its shards.

        Raises:
            DataError: there is no such split.
        """
        names = list(self.manifest.splits)
        if name not in names:
            raise DataError(
                f"there is no split '{name}'{nearest(name, names)}",
                where=self.location,
                remedy=f"Its splits are: {', '.join(names)}",
            )
        return Split(self._files, name, self.manifest, self._states)


def open_prepared(location: Path | str) -> Prepared:
    """Open a prepared dataset: a directory, or a URI (see `rss_rl.data.locations`).

    Raises:
        DataError: it is not one, or of another version. StorageError: the URI does not answer.
    """
    return Prepared(open_files(location))

"""Reading prepared data: shards are mapped at first use, and only padded batches are copied.

Legend: B examples of a batch, S sentence slots, N_s longest sentence of slot s.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from rss_rl.data.batch_order import WINDOW_SHARDS
from rss_rl.data.label_weights import FOLDS, HASHES, fold_of
from rss_rl.data.locations import Files, open_files
from rss_rl.data.manifest import (
    HELD_OUT_FILE,
    SUBWORDS_FILE,
    VECTORS_FILE,
    VOCABULARY_FILE,
    FileInfo,
    Manifest,
    shard_file,
)
from rss_rl.data.shard import Shard
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
    `lengths()` or `batch` return is copied. A shard is checked at its first use, so every method
    that reads one may raise DataError.

    Args:
        files: of the dataset.
        name: 'train', 'dev', 'test'.
        manifest: of the dataset.
        states: of its tokens, which batches then have; None: batches have none.
    """

    def __init__(
        self, files: Files, name: str, manifest: Manifest, states: StatesInfo | None = None
    ) -> None:
        self._states_info = states
        self._states = states and StatesReader(files, states, name, manifest.sentences)
        self.name = name
        self._has_folds = name == "train" and manifest.vectors.held_out is not None
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
        places, known = self._places(rows), self._info.known

        def cells(name: str) -> list[Any]:
            return [shard.cell(name, inside) for shard, inside in places]

        def padded(name: str, valid: Array, fill: int = PAD) -> Array:
            """int64 [B, N], the list of each row, and `fill` where `valid` [B, N] is False."""
            values = np.full(valid.shape, fill, dtype=np.int64)
            if places:
                values[valid] = np.concatenate(cells(name))
            return values

        valid = []
        for slot in range(self.sentences):
            lengths = np.array([len(part) for part in cells(f"tokens_{slot}")], dtype=np.int64)
            valid.append(np.arange(lengths.max(initial=0)) < lengths[:, None])  # [B, N]

        def by_slot(name: str) -> tuple[Array, ...]:
            return tuple(padded(f"{name}_{slot}", keep) for slot, keep in enumerate(valid))

        tokens = by_slot("tokens")
        folds = None
        if self._has_folds:
            real = np.concatenate(valid, axis=1)
            folds = fold_of(np.concatenate(tokens, axis=1)[real], real.sum(1))
        rationale = by_slot("rationale") if "rationale" in known else None
        kind = np.float32 if self.labels.kind == "score" else np.int64
        return Batch(
            rows,
            tokens,
            tuple(valid),
            np.array(cells("label"), dtype=kind),
            None if rationale is None else tuple(bits.astype(bool) for bits in rationale),
            padded("marks", valid[0], -1) if "marks" in known else None,
            np.array(cells("question"), dtype=np.int64) if "question" in known else None,
            padded("annotations", valid[0]) if "annotations" in known else None,
            self._states.padded(rows, valid) if self._states else None,
            folds,
        )

    def numbers(self, name: str) -> Array:
        """`label`, `question` or `weight` of all rows, [len]; where there are none, ones."""
        if name != "label" and name not in self._info.known:
            return np.ones(len(self))
        return np.concatenate([self._shard(n).column(name) for n in range(len(self.shard_rows))])

    def words(self, row: int) -> tuple[tuple[str, ...], ...]:
        """The words of each sentence of a row, as they were written."""
        ((shard, inside),) = self._places(self._in_range([row]))
        return shard.words(inside)

    def example_id(self, row: int) -> str:
        """The id that the source gave a row."""
        ((shard, inside),) = self._places(self._in_range([row]))
        return shard.example_id(inside)

    def _places(self, rows: Array) -> list[tuple[Shard, int]]:
        """The shard of each row, and its number there."""
        owners = self._owners(rows)
        shards = {number: self._shard(number) for number in np.unique(owners).tolist()}
        inside = (rows - self._starts[owners]).tolist()
        return [(shards[n], i) for n, i in zip(owners.tolist(), inside, strict=True)]

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
        info, name = self._info.shards[number], shard_file(self.name, number)
        path = self._files.verified(name, info)
        trusted = number in self._checked
        try:
            shard = Shard(path, self._manifest, self._info, info.rows, trusted=trusted)
        except (OSError, ValueError) as error:  # Arrow's are among them
            raise self._files.damaged(name, str(error).splitlines()[0]) from error
        self._checked.add(number)
        return shard


class Prepared:
    """A prepared dataset.

    Args:
        files: of the dataset.
        states: of its tokens, which batches then have; see `with_states`.
    """

    def __init__(self, files: Files, states: StatesInfo | None = None) -> None:
        self._files, self._states = files, states
        self.manifest = Manifest.load(files.folder)

    def with_states(
        self, encoder: str, digest: str, layers: int | None = None, window: Window = "text"
    ) -> Prepared:
        """The same dataset with an encoder's states of its tokens.

        Raises:
            DataError: see `open_states`.
        """
        encoding = Encoding(encoder=encoder, digest=digest, layers=layers, window=window)
        return Prepared(self._files, open_states(self._files, encoding))

    def states(self) -> StatesInfo | None:
        """Those of its batches, see `with_states`; None: they have none."""
        return self._states

    def states_digest(self) -> str | None:
        """SHA-256 that identifies the states of batches; None where they have none."""
        if self._states is None:
            return None
        return hashlib.sha256(self._states.model_dump_json().encode()).hexdigest()

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
        path = self._files.verified(VOCABULARY_FILE, info)
        try:
            return Vocabulary.load(path, info.size, info.trainable)
        except DataError as error:
            raise self._files.damaged(VOCABULARY_FILE, error.what) from error

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer the data was prepared with, for new text."""
        return Tokenizer(self.manifest.tokenizer.lower)

    def vectors(self) -> Array:
        """float32 [V, E], the vector of each word.

        Raises:
            DataError: the file is missing, damaged, or of another shape.
        """
        info = self.manifest.vectors
        return self._array(VECTORS_FILE, info, "vectors", self.manifest.vocabulary.size, info.dim)

    @cached_property
    def subwords(self) -> Array | None:
        """float32 [G, C], the label weights of subwords; None: words have no label weights.

        Raises:
            DataError: the file is missing, damaged, or of another shape.
        """
        info = self.manifest.vectors
        shape = HASHES, info.label_weights // 2
        file = info.subwords
        return None if file is None else self._array(SUBWORDS_FILE, file, "weights", *shape)

    def held_out(self) -> Array | None:
        """float32 [F, V, 2 C], see `LabelWeights.held_out`; None: words have no label weights.

        Raises:
            DataError: the file is missing, damaged, or of another shape.
        """
        info = self.manifest.vectors
        shape = FOLDS, self.manifest.vocabulary.trainable, info.label_weights
        file = info.held_out
        return None if file is None else self._array(HELD_OUT_FILE, file, "changes", *shape)

    def _array(self, name: str, info: FileInfo, key: str, *shape: int) -> Array:
        path = self._files.verified(name, info)
        try:
            array: Array = load_file(path)[key]
        except (OSError, KeyError, TypeError, ValueError, SafetensorError) as error:
            raise self._files.damaged(name, f"cannot be read ({error})") from error
        if array.shape != shape or array.dtype != np.float32 or not np.isfinite(array).all():
            what = f"does not hold finite float32 numbers of shape {shape}"
            raise self._files.damaged(name, what)
        return array

    def check(self) -> None:
        """Read the vocabulary, verify the vectors and states, and check that each shard exists.

        Raises:
            DataError: a file is missing or damaged.
        """
        for name, info in self.manifest.files().items():
            self._files.verified(name, info, content=False)
        _ = self.vocabulary, self._files.verified(VECTORS_FILE, self.manifest.vectors)
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

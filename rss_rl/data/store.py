"""Reading a prepared directory: memory-mapped, without copying but into the padded batches.

Legend: B examples of a batch, S sentence slots, N_s longest sentence of slot s.
"""

from __future__ import annotations

__all__ = ["Prepared", "Split", "open_prepared"]

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from safetensors import SafetensorError
from safetensors.numpy import load_file

from rss_rl.data import manifest as records
from rss_rl.data.manifest import Manifest
from rss_rl.data.tokens import Tokenizer
from rss_rl.data.vocabulary import PAD, Vocabulary
from rss_rl.errors import DataError, nearest
from rss_rl.types import Array, Batch, LabelSpec

_AGAIN = "The file is cut short or damaged: prepare the data again"


@dataclass(frozen=True)
class _Ragged:
    """A list column of one record batch as views of the map: row i is values[offsets[i]:...]."""

    values: Array
    offsets: Array

    @classmethod
    def view(cls, column: Any) -> _Ragged:
        return cls(
            column.values.to_numpy(zero_copy_only=True),
            column.offsets.to_numpy(zero_copy_only=True),
        )

    def row(self, i: int) -> Array:
        return self.values[self.offsets[i] : self.offsets[i + 1]]


class Split:
    """One split of a prepared dataset, an `ExampleSource`. Pickles as its path, and opens again.

    Args:
        folder: the prepared directory.
        name: 'train', 'dev', 'test'.
        manifest: of the directory.
    """

    def __init__(self, folder: Path, name: str, manifest: Manifest) -> None:
        self.name = name
        self._folder, self._manifest = folder, manifest
        self._path = folder / records.split_file(name)
        self._blocks = _open_blocks(self._path, manifest, manifest.splits[name])
        sizes = [block.num_rows for block in self._blocks]
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)  # [blocks + 1]
        slots = range(manifest.sentences)
        self._tokens = [[_Ragged.view(b[f"tokens_{s}"]) for b in self._blocks] for s in slots]
        self._labels = [b["label"].to_numpy(zero_copy_only=True) for b in self._blocks]

    def __reduce__(self) -> tuple[object, ...]:
        return (Split, (self._folder, self.name, self._manifest))

    @property
    def labels(self) -> LabelSpec:
        """What is predicted."""
        return self._manifest.labels

    @property
    def sentences(self) -> int:
        """Sentence slots an example has, 1 or 2."""
        return self._manifest.sentences

    def __len__(self) -> int:
        return int(self._starts[-1])

    @cached_property
    def _lengths(self) -> Array:
        slots = [np.concatenate([np.diff(r.offsets) for r in part]) for part in self._tokens]
        lengths = np.stack(slots, axis=1).astype(np.int64)  # [n, S]
        lengths.setflags(write=False)
        return lengths

    def lengths(self) -> Array:
        """int64 [n, S], real tokens of each sentence (read-only)."""
        return self._lengths

    def views(self) -> list[Array]:
        """The arrays that batches are filled from: views of the memory map, read-only."""
        ragged = [r for part in self._tokens for r in part]
        return [*(a for r in ragged for a in (r.values, r.offsets)), *self._labels]

    def batch(self, rows: Sequence[int] | Array) -> Batch:
        """The examples of `rows`, each slot padded to its own longest sentence.

        Raises:
            DataError: a row out of range, or a token id the vocabulary does not have.
        """
        rows = self._checked(rows)
        places = self._places(rows)
        tokens, valid = [], []
        for slot in range(self.sentences):
            lengths = self._lengths[rows, slot]  # [B]
            keep = np.arange(lengths.max(initial=0)) < lengths[:, None]  # [B, N]
            ids = np.full(keep.shape, PAD, dtype=np.int64)
            parts = [self._tokens[slot][block].row(i) for block, i in places]
            if parts:
                ids[keep] = np.concatenate(parts)
            if ids.min(initial=0) < 0 or ids.max(initial=0) >= self._manifest.vocabulary.size:
                raise DataError("holds unknown token ids", where=str(self._path), remedy=_AGAIN)
            tokens.append(ids)
            valid.append(keep)
        kind = np.int64 if self.labels.kind == "classes" else np.float32
        labels = np.array([self._labels[block][i] for block, i in places], dtype=kind)
        return Batch(rows, tuple(tokens), tuple(valid), labels, self._rationale(places, valid))

    def _rationale(
        self, places: list[tuple[int, int]], valid: list[Array]
    ) -> tuple[Array, ...] | None:
        if not self._manifest.splits[self.name].rationale:
            return None
        slots = []
        for slot, keep in enumerate(valid):
            bits = np.zeros(keep.shape, dtype=bool)  # [B, N]
            parts = [self._blocks[b][f"rationale_{slot}"][i].values for b, i in places]
            if parts:
                # Bits are packed in Arrow, so these are the one column that is not viewed.
                bits[keep] = pa.chunked_array(parts).to_numpy()
            slots.append(bits)
        return tuple(slots)

    def words(self, row: int) -> tuple[tuple[str, ...], ...]:
        """The words of each sentence of a row, as they were written."""
        block, i = self._places(self._checked([row]))[0]
        columns = (self._blocks[block][f"words_{slot}"] for slot in range(self.sentences))
        return tuple(tuple(column[i].as_py()) for column in columns)

    def example_id(self, row: int) -> str:
        """The id that the source gave a row."""
        block, i = self._places(self._checked([row]))[0]
        return str(self._blocks[block]["example_id"][i].as_py())

    def _checked(self, rows: Sequence[int] | Array) -> Array:
        rows = np.asarray(rows, dtype=np.int64)
        if len(rows) and (rows.min() < 0 or rows.max() >= len(self)):
            raise DataError(
                f"rows {rows.min()} to {rows.max()} are asked for, the {self.name} split has "
                f"{len(self)}",
                where=str(self._path),
            )
        return rows

    def _places(self, rows: Array) -> list[tuple[int, int]]:
        """Record batch of each row, and its place there."""
        blocks = np.searchsorted(self._starts, rows, side="right") - 1
        return list(zip(blocks.tolist(), (rows - self._starts[blocks]).tolist(), strict=True))


def _open_blocks(path: Path, manifest: Manifest, info: records.SplitInfo) -> list[Any]:
    """The record batches of a split, mapped; checked, so that no later read can go astray."""
    try:
        size = path.stat().st_size
        if size != info.bytes:
            raise DataError(
                f"has {size} bytes, the manifest says {info.bytes}", where=str(path), remedy=_AGAIN
            )
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        blocks = [reader.get_batch(i) for i in range(reader.num_record_batches)]
        for block in blocks:
            block.validate(full=True)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"cannot be read ({error})", where=str(path), remedy=_AGAIN) from error
    rows = sum(block.num_rows for block in blocks)
    wanted = {f"{column}_{s}" for column in ("tokens", "words") for s in range(manifest.sentences)}
    wanted |= {"example_id", "label"}
    if rows != info.rows or not wanted <= set(reader.schema.names):
        raise DataError("is not what the manifest says", where=str(path), remedy=_AGAIN)
    return blocks


class Prepared:
    """A prepared dataset.

    Args:
        folder: the prepared directory.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = Manifest.load(folder)

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
        return Vocabulary.load(self.folder / records.VOCABULARY_FILE, info.size, info.trainable)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer the data was prepared with, for new text."""
        return Tokenizer(self.manifest.tokenizer.lower)

    def vectors(self) -> Array:
        """float32 [V, E], the vector of each word.

        Raises:
            DataError: the file is missing, damaged, or of another shape.
        """
        path = self.folder / records.VECTORS_FILE
        try:
            vectors: Array = load_file(path)["vectors"]
        except (OSError, KeyError, SafetensorError) as error:
            raise DataError(f"cannot be read ({error})", where=str(path), remedy=_AGAIN) from error
        shape = (self.manifest.vocabulary.size, self.manifest.vectors.dim)
        if vectors.shape != shape:
            raise DataError(f"has shape {vectors.shape}, not {shape}", where=str(path))
        return vectors

    def split(self, name: str) -> Split:
        """A split by name.

        Raises:
            DataError: there is no such split, or its file is cut short or damaged.
        """
        names = list(self.manifest.splits)
        if name not in names:
            raise DataError(
                f"there is no split '{name}'{nearest(name, names)}",
                where=str(self.folder),
                remedy=f"Its splits are: {', '.join(names)}",
            )
        return Split(self.folder, name, self.manifest)


def open_prepared(path: Path | str) -> Prepared:
    """Open a prepared directory.

    Raises:
        DataError: it is none, or of another version.
    """
    return Prepared(Path(path))

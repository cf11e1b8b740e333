"""The Arrow files (shards) of a split: their schema, writing them, and reading one memory-mapped.

A shard is an Arrow IPC file (Feather 2), which any Arrow reader opens. Its values are checked when
it is opened, so that later reads are safe.

Legend: b requested rows, S sentence slots.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rss_rl.data.manifest import Manifest, ShardInfo, SplitInfo, shard_file
from rss_rl.durable import file_sha256
from rss_rl.types import Array, LabelSpec


def shard_schema(sentences: int, labels: LabelSpec, known: Collection[str]) -> Any:
    """The columns of a split; `known`: which of `rss_rl.data.manifest.KNOWN` it has.

    example_id   string
    tokens_s     list<int32>, ids of the words of sentence slot s
    words_s      list<string>, the words as written
    label        int32, index of a class or number of a sentence or candidate; or float32, a score
    rationale_s  list<bool>, one for each word, where known
    marks        list<int32>, one for each word of slot 0, where labels are one of them
    question     int64, number of the question, where examples are rival answers
    annotations  list<int32>, one for each word of slot 0: bit k says that annotator k marked it
    """
    fields: list[tuple[str, Any]] = [("example_id", pa.string())]
    for slot in range(sentences):
        fields.append((f"tokens_{slot}", pa.list_(pa.int32())))
        fields.append((f"words_{slot}", pa.list_(pa.string())))
    fields.append(("label", pa.float32() if labels.kind == "score" else pa.int32()))
    return pa.schema(fields + known_fields(sentences, known))


def known_fields(sentences: int, known: Collection[str]) -> list[tuple[str, Any]]:
    """The columns of `shard_schema` that only some splits have."""
    of_slots = [(f"rationale_{slot}", pa.list_(pa.bool_())) for slot in range(sentences)]
    kinds = {
        "rationale": of_slots,
        "marks": [("marks", pa.list_(pa.int32()))],
        "questions": [("question", pa.int64())],
        "annotations": [("annotations", pa.list_(pa.int32()))],
    }
    return [field for name, fields in kinds.items() if name in known for field in fields]


class ShardWriter:
    """Writes record batches into consecutive shards of a split.

    Args:
        folder: of the files. split: its name. schema: of `shard_schema`.
        shard_bytes: a shard ends before the record batch that would make it larger; record batches
            are not split.
    """

    def __init__(self, folder: Path, split: str, schema: Any, shard_bytes: int) -> None:
        self._folder, self._split, self._schema = folder, split, schema
        self._shard_bytes = shard_bytes
        self._done: list[ShardInfo] = []
        self._sink: Any = None
        self._writer: Any = None
        self._rows = 0

    def write(self, batch: Any) -> None:
        """Add a record batch."""
        if self._rows and self._sink.tell() + batch.nbytes > self._shard_bytes:
            self._finish()
        if self._writer is None:
            path = self._folder / shard_file(self._split, len(self._done))
            self._sink = pa.OSFile(str(path), "wb")
            self._writer = pa.ipc.new_file(self._sink, self._schema)
        self._writer.write_batch(batch)
        self._rows += batch.num_rows

    def close(self) -> tuple[ShardInfo, ...]:
        """Finish the last shard; returns all of them."""
        if self._rows:
            self._finish()
        return tuple(self._done)

    def _finish(self) -> None:
        self._writer.close()
        self._sink.close()
        name = shard_file(self._split, len(self._done))
        path = self._folder / name
        self._done.append(
            ShardInfo(
                name=name, rows=self._rows, bytes=path.stat().st_size, sha256=file_sha256(path)
            )
        )
        self._writer, self._rows = None, 0


def read_blocks(path: Path, schema: Any) -> list[Any]:
    """The record batches of a shard as views of its memory map; their values are not checked.

    Raises:
        ValueError: it is not an Arrow file of this schema. OSError: it cannot be opened.
    """
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        if not reader.schema.equals(schema):
            raise ValueError("has other columns than the manifest says")
        return [reader.get_batch(number) for number in range(reader.num_record_batches)]
    except pa.ArrowException as error:
        raise ValueError(f"cannot be read ({error})") from error


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


class StoredRow(NamedTuple):
    """An example as views of the map.

    tokens     int32 ids of each sentence
    label      index of a class, a score, or the number of a sentence or candidate
    rationale  an Arrow array of bits for each sentence; empty where unknown
    marks      int32 numbers of the tokens of slot 0; None where there are none
    question   number of the question; None where there are none
    annotations  int32 annotators of the tokens of slot 0, as bits; None where not distinguished
    """

    tokens: tuple[Array, ...]
    label: Any
    rationale: tuple[Any, ...]
    marks: Array | None
    question: Any
    annotations: Array | None = None


class Shard:
    """The rows of one Arrow file.

    Args:
        path: the file, whose size has been checked.
        manifest, info: of the dataset and of the split, which the file must agree with.
        rows: that it must hold.
        trusted: this very file was checked before; its values are not checked again.

    Raises:
        ValueError: it is damaged or not what the manifest says. OSError: it cannot be opened.
    """

    def __init__(
        self, path: Path, manifest: Manifest, info: SplitInfo, rows: int, *, trusted: bool = False
    ) -> None:
        schema = shard_schema(manifest.sentences, manifest.labels, info.known)
        self._blocks = read_blocks(path, schema)
        sizes = [block.num_rows for block in self._blocks]
        if sum(sizes) != rows:
            raise ValueError(f"has {sum(sizes)} rows, the manifest says {rows}")
        if not trusted:
            for block in self._blocks:
                _check(block, manifest, info)
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)  # [blocks + 1]
        slots = range(manifest.sentences)
        self._tokens = [[_Ragged.view(b[f"tokens_{s}"]) for b in self._blocks] for s in slots]
        self._labels = [b["label"].to_numpy(zero_copy_only=True) for b in self._blocks]
        self._rationale = [f"rationale_{s}" for s in slots if info.rationale]
        blocks = self._blocks
        self._marks = [_Ragged.view(b["marks"]) for b in blocks] if info.marks else []
        self._annotations = [_Ragged.view(b["annotations"]) for b in blocks if info.annotations]
        questions = [b["question"].to_numpy(zero_copy_only=True) for b in blocks if info.questions]
        self._questions = questions

    def row(self, row: int) -> StoredRow:
        """A row, numbered from 0 within the shard."""
        block, i = self._place(row)
        return StoredRow(
            tuple(part[block].row(i) for part in self._tokens),
            self._labels[block][i],
            tuple(self._blocks[block][name][i].values for name in self._rationale),
            self._marks[block].row(i) if self._marks else None,
            self._questions[block][i] if self._questions else None,
            self._annotations[block].row(i) if self._annotations else None,
        )

    def lengths(self, rows: Array) -> Array:
        """int64 [b, S], real tokens of each sentence of some rows of the shard."""
        order = np.argsort(rows, kind="stable")
        rising = rows[order]
        cuts = np.searchsorted(rising, self._starts)
        lengths = np.empty((len(rows), len(self._tokens)), dtype=np.int64)
        for block in np.flatnonzero(np.diff(cuts)):
            part = slice(cuts[block], cuts[block + 1])
            inside = rising[part] - self._starts[block]
            for slot, column in enumerate(self._tokens):
                offsets = column[block].offsets
                lengths[order[part], slot] = offsets[inside + 1] - offsets[inside]
        return lengths

    def words(self, row: int) -> tuple[tuple[str, ...], ...]:
        """The words of each sentence of a row, as they were written."""
        block, i = self._place(row)
        columns = (self._blocks[block][f"words_{slot}"] for slot in range(len(self._tokens)))
        return tuple(tuple(column[i].as_py()) for column in columns)

    def example_id(self, row: int) -> str:
        """The id that the source gave a row."""
        block, i = self._place(row)
        return str(self._blocks[block]["example_id"][i].as_py())

    def _place(self, row: int) -> tuple[int, int]:
        block = int(np.searchsorted(self._starts, row, side="right")) - 1
        return block, row - int(self._starts[block])


def _check(block: Any, manifest: Manifest, info: SplitInfo) -> None:
    """Check offsets, text, ids, labels and bits of a record batch.

    Raises:
        ValueError: something is not as `prepare` writes it.
    """
    block.validate(full=True)
    for name in block.schema.names:
        column = block[name]
        values = column.values if hasattr(column, "values") else column
        if column.null_count or values.null_count:
            raise ValueError(f"lacks values in column {name}")
    for slot in range(manifest.sentences):
        tokens = block[f"tokens_{slot}"]
        lengths = np.diff(tokens.offsets.to_numpy())
        if lengths.min(initial=1) < 1 or lengths.max(initial=1) > info.longest[slot]:
            raise ValueError("holds sentences of other lengths than the manifest says")
        beside = [f"words_{slot}", *([f"rationale_{slot}"] if info.rationale else [])]
        if slot == 0:
            beside += [name for name in ("marks", "annotations") if name in info.known]
        for name in beside:
            if (np.diff(block[name].offsets.to_numpy()) != lengths).any():
                raise ValueError(f"does not have one of {name} for each token")
        ids = tokens.values.to_numpy(zero_copy_only=True)
        if ids.min(initial=0) < 0 or ids.max(initial=0) >= manifest.vocabulary.size:
            raise ValueError("holds unknown token ids")
    if info.marks:
        marks = block["marks"].values.to_numpy(zero_copy_only=True)
        if marks.min(initial=0) < -1 or marks.max(initial=0) >= info.longest[0]:
            raise ValueError("holds unknown marks")
    labels = block["label"].to_numpy(zero_copy_only=True)
    classes = len(manifest.labels.names) or math.inf
    if not np.isfinite(labels).all() or (
        manifest.labels.kind != "score"
        and (labels.min(initial=0) < 0 or labels.max(initial=0) >= classes)
    ):
        raise ValueError("holds unknown labels")

"""The Arrow files (shards) of a split: their schema, writing them, and reading one memory-mapped.

A shard is an Arrow IPC file (Feather 2) of one record batch, which any Arrow reader opens. Its
values are checked when it is first opened, so that later reads are safe.

Legend: b requested rows, S sentence slots.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rss_rl.data.manifest import Manifest, ShardInfo, SplitInfo, file_info, shard_file
from rss_rl.types import Array, LabelSpec

SHARD_BYTES = 64_000_000
LEAST_WEIGHT = 1e-6
"""Of an example; the largest is 1 / LEAST_WEIGHT."""


def split_schema(
    sentences: int, labels: LabelSpec, known: Collection[str], *, staged: bool = False
) -> Any:
    """The columns of a split.

    example_id   string
    tokens_s     list<int32>, ids of the words of sentence slot s
    words_s      list<string>, the words as written
    label        int32, index of a class or number of a sentence or candidate; or float32, a score
    rationale_s  list<uint8>, 0 or 1 for each word, where known
    marks        list<int32>, one for each word of slot 0, where labels are one of them
    question     int64, number of the question, where examples are rival answers
    annotations  list<int32>, one for each word of slot 0: bit k says that annotator k marked it
    weight       float32, how often the example counts in training

    Args:
        known: see `SplitInfo`.
        staged: before ids are known: tokens and classes are text; scores have 64 bits, bits one.
    """
    kinds = {"score": pa.float64() if staged else pa.float32()}
    kinds["classes"] = pa.string() if staged else pa.int32()
    fields = [("example_id", pa.string()), ("label", kinds.get(labels.kind, pa.int32()))]
    for slot in range(sentences):
        fields.append((f"tokens_{slot}", pa.list_(pa.string() if staged else pa.int32())))
        fields.append((f"words_{slot}", pa.list_(pa.string())))
        if "rationale" in known:
            fields.append((f"rationale_{slot}", pa.list_(pa.bool_() if staged else pa.uint8())))
    fields += [(name, pa.list_(pa.int32())) for name in ("marks", "annotations") if name in known]
    numbers = {"question": pa.int64(), "weight": pa.float32()}
    return pa.schema(fields + [(name, kind) for name, kind in numbers.items() if name in known])


def write_shards(
    folder: Path, name: str, schema: Any, batches: Iterable[Any], first: int = 0
) -> Iterator[ShardInfo]:
    """Write record batches into consecutive shards, called by `shard_file`.

    A shard ends before the batch that would make it larger than SHARD_BYTES.

    Args:
        name: of the split. first: number of the first shard.

    Yields:
        What the manifest says of each shard, when it has been written.
    """
    numbers, waiting = count(first), list[Any]()

    def write() -> ShardInfo:
        path = folder / shard_file(name, next(numbers))
        table = pa.Table.from_batches(waiting, schema).combine_chunks()
        with pa.ipc.new_file(str(path), schema) as writer:
            writer.write_table(table)
        waiting.clear()
        return ShardInfo(rows=table.num_rows, **file_info(path))

    for batch in batches:
        if waiting and sum(each.nbytes for each in (*waiting, batch)) > SHARD_BYTES:
            yield write()
        waiting.append(batch)
    if waiting:
        yield write()


def read_batch(path: Path, schema: Any, rows: int) -> Any:
    """The record batch of an Arrow file, as views of its memory map.

    Raises:
        ValueError: it is not an Arrow file of this schema with one batch of so many rows, or its
            structure is damaged. OSError: it cannot be opened.
    """
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        if not reader.schema.equals(schema):
            raise ValueError("has other columns than expected")
        batch = reader.get_batch(0) if reader.num_record_batches == 1 else None
    except pa.ArrowException as error:
        raise ValueError(f"cannot be read ({error})") from error
    if batch is None or batch.num_rows != rows:
        raise ValueError(f"does not hold {rows} rows in one record batch")
    return batch


class _View(NamedTuple):
    """The values of a column as a view of the map, and the offsets of its rows if of lists."""

    values: Array
    offsets: Array | None


class Shard:
    """The rows of one Arrow file.

    Args:
        path: the file, whose SHA-256 has been checked.
        manifest, info: of the dataset and of the split, which the file must agree with.
        rows: that it must hold.
        trusted: this very file was checked before; its values are not checked again.

    Raises:
        ValueError: it is damaged or not what the manifest says. OSError: it cannot be opened.
    """

    def __init__(
        self, path: Path, manifest: Manifest, info: SplitInfo, rows: int, *, trusted: bool = False
    ) -> None:
        schema = split_schema(manifest.sentences, manifest.labels, info.known)
        self._batch = read_batch(path, schema, rows)
        if not trusted:
            _check_values(self._batch)
        self._columns = {
            name: _view(self._batch[name])
            for name in schema.names
            if name != "example_id" and not name.startswith("words_")
        }
        self._tokens = [f"tokens_{slot}" for slot in range(manifest.sentences)]
        if not trusted:
            self._check(manifest, info)

    def cell(self, name: str, row: int) -> Any:
        """The value of a column in a row, numbered from 0; of a list a view."""
        values, offsets = self._columns[name]
        return values[row] if offsets is None else values[offsets[row] : offsets[row + 1]]

    def column(self, name: str) -> Array:
        """The values of a column of single numbers, [rows]."""
        return self._columns[name].values

    def lengths(self, rows: Array) -> Array:
        """int64 [b, S], real tokens of each sentence of some rows of the shard."""
        lengths = []
        for name in self._tokens:
            offsets = self._columns[name].offsets
            assert offsets is not None
            lengths.append(offsets[rows + 1].astype(np.int64) - offsets[rows])
        return np.stack(lengths, axis=1)

    def words(self, row: int) -> tuple[tuple[str, ...], ...]:
        """The words of each sentence of a row, as they were written."""
        slots = range(len(self._tokens))
        return tuple(tuple(self._batch[f"words_{slot}"][row].as_py()) for slot in slots)

    def example_id(self, row: int) -> str:
        """The id that the source gave a row."""
        return str(self._batch["example_id"][row].as_py())

    def _check(self, manifest: Manifest, info: SplitInfo) -> None:
        """Check lengths, ids, marks and labels, which code without bounds checks will use.

        Raises:
            ValueError: something is not as `prepare` writes it.
        """
        lengths = self.lengths(np.arange(self._batch.num_rows))  # [rows, S]
        if lengths.min() < 1 or (lengths.max(axis=0) > info.longest).any():
            raise ValueError("holds sentences of other lengths than the manifest says")
        for name in self._batch.schema.names:
            slot = int(name[-1]) if name[-1].isdigit() else 0
            column = self._batch[name]
            if (
                pa.types.is_list(column.type)
                and (np.diff(column.offsets.to_numpy()) != lengths[:, slot]).any()
            ):
                raise ValueError(f"does not have one of {name} for each token")
        classes = len(manifest.labels.names) or math.inf
        bounds: dict[str, tuple[float, float]] = {"label": (0, classes)}
        bounds |= dict.fromkeys(self._tokens, (0, manifest.vocabulary.size))
        bounds |= {"marks": (-1, info.longest[0]), "weight": (LEAST_WEIGHT, math.inf)}
        for name, (low, end) in bounds.items():
            if name not in self._columns:
                continue
            values = self._columns[name].values
            if name == "label" and manifest.labels.kind == "score":
                fine = np.isfinite(values).all()
            else:
                fine = values.min() >= low and values.max() < end
            if not fine:
                raise ValueError(f"holds unknown values of {name}")


def _view(column: Any) -> _View:
    if not pa.types.is_list(column.type):
        return _View(column.to_numpy(zero_copy_only=True), None)
    values = column.values.to_numpy(zero_copy_only=True)
    return _View(values, column.offsets.to_numpy(zero_copy_only=True))


def _check_values(batch: Any) -> None:
    """Check that offsets and text are valid, and that no value is missing.

    Raises:
        ValueError: they are not.
    """
    batch.validate(full=True)
    for name in batch.schema.names:
        column = batch[name]
        if column.null_count or (pa.types.is_list(column.type) and column.values.null_count):
            raise ValueError(f"lacks values in column {name}")

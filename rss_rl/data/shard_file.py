"""The Arrow files (shards) of a split: their schema, writing them, and reading one safely.

A shard is an Arrow IPC file (Feather 2), which any Arrow reader opens. Its schema must be exactly
that of the split.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa

from rss_rl.data.manifest import ShardInfo, shard_file
from rss_rl.durable import file_sha256
from rss_rl.types import LabelSpec


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

"""Contextual token states of a pretrained encoder, stored beside prepared data.

    DATA/states/ENCODING/states.json                 which encoder, and the files: `StatesInfo`
    DATA/states/ENCODING/states-SPLIT-NNNNN.arrow    states of consecutive rows, one record batch

Each encoder has a folder of its own, see `Encoding.folder`, which appears when it is complete. An
interrupted command resumes after the last file.

Legend: S sentence slots, N_s tokens of a row's sentence s, H size of a state.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from rss_rl.components import Options
from rss_rl.data.locations import Files
from rss_rl.data.manifest import MANIFEST_BYTES, MANIFEST_FILE, ShardInfo, shard_file
from rss_rl.data.shard import read_batch, write_shards
from rss_rl.durable import file_sha256, plain_bytes, refuse_links, replace_file, sync_file
from rss_rl.errors import DataError
from rss_rl.types import Array, Window

STATES_FILE = "states.json"
_OPEN_FILES = 1024
"""Memory maps of 64 MB each, which take address space, not memory."""


class Encoding(Options):
    """How states are computed.

    encoder  as it was named. digest: of its files
    layers   of it that are computed, from the first; None = all
    window   what it reads at once
    """

    encoder: str
    digest: str
    layers: int | None = None
    window: Window = "text"

    def __str__(self) -> str:
        """As the command line names it."""
        layers = "" if self.layers is None else f" --layers {self.layers}"
        return self.encoder + layers + ("" if self.window == "text" else f" --window {self.window}")

    @property
    def folder(self) -> str:
        """Of its states, within the data: named by what determines them, not by where it lies."""
        layers = "" if self.layers is None else f"-{self.layers}-layers"
        return f"states/{self.digest[:16]}{layers}-{self.window}"


class StatesInfo(Options):
    """Contents of states.json.

    manifest  SHA-256 of the data's manifest
    size      H
    splits    the files of each split, in row order
    """

    version: Literal[2] = 2
    encoding: Encoding
    manifest: str
    size: int = Field(ge=1)
    splits: dict[str, tuple[ShardInfo, ...]] = Field(default_factory=dict)

    def fetch(self, data: Files, split: str, number: int) -> Path:
        """The path of a file, whose SHA-256 was verified in this process.

        Raises:
            DataError: it is missing or damaged.
        """
        name = f"{self.encoding.folder}/{file_name(split, number)}"
        return data.verified(name, self.splits[split][number], _again(data, self.encoding))

    def check(self, data: Files) -> None:
        """Verify all files.

        Raises:
            DataError: one is missing or damaged.
        """
        for split, files in self.splits.items():
            for number in range(len(files)):
                self.fetch(data, split, number)

    def rows(self, split: str) -> int:
        """Rows of a split that have states."""
        return sum(file.rows for file in self.splits.get(split, ()))


def file_name(split: str, number: int) -> str:
    """Name of a file of states within its folder; files of a split are numbered from 0."""
    return shard_file(f"states-{split}", number)


def _again(data: Files, encoding: Encoding) -> str:
    """The remedy for damaged states."""
    return f"Encode the data again: `{_command(data, encoding)}`"


def _command(data: Files, encoding: Encoding) -> str:
    return f"rss-rl data encode {data.location} --pretrained {encoding}"


def stored_states(folder: Path) -> list[StatesInfo]:
    """The states beside prepared data, of all encoders.

    Raises:
        DataError: a states.json is damaged, or of another version.
    """
    # Names with a dot are of folders that are not complete.
    paths = sorted(folder.glob(f"states/[!.]*/{STATES_FILE}"))
    infos = (_read_info(path.parent) for path in paths)
    return [info for info in infos if info is not None]


def _read_info(folder: Path) -> StatesInfo | None:
    """The states.json of a folder; None if there is none.

    Raises:
        DataError: the file is damaged, or of another version.
    """
    path = folder / STATES_FILE
    try:
        return StatesInfo.model_validate_json(plain_bytes(path, MANIFEST_BYTES))
    except FileNotFoundError:
        return None
    except (ValueError, OSError) as error:
        what = str(error).splitlines()[0]
        remedy = "Encode the data again"
        raise DataError(f"cannot be read ({what})", where=str(path), remedy=remedy) from error


def manifest_digest(files: Files) -> str:
    """SHA-256 of the manifest of prepared data."""
    return file_sha256(files.folder / MANIFEST_FILE)


def open_states(files: Files, encoding: Encoding) -> StatesInfo:
    """The states of prepared data that a policy reads.

    Raises:
        DataError: there are none, or they are of another encoder or other data.
    """
    command, where = _command(files, encoding), files.location
    if files.digest:
        raise DataError(
            "states of tokens are read from a directory only, not from a URI",
            where=where,
            remedy="Copy the data into a directory that all nodes can read, and encode them there",
        )
    info = _read_info(files.folder / encoding.folder)
    if info is not None and info.manifest == manifest_digest(files):
        return info
    what = "the states of the tokens are of other data"
    if info is None:
        others = ", ".join(str(other.encoding) for other in stored_states(files.folder))
        what = f"policy.reads=contextual needs states of the tokens: there are none of {encoding}"
        what += f", only of {others}" if others else ""
    raise DataError(what, where=where, remedy=f"Run `{command}`")


def intact_states(folder: Path, wanted: StatesInfo) -> StatesInfo | None:
    """What was written to an encoder's folder earlier; None if it is of other data, or damaged."""
    with suppress(DataError, OSError):
        info = _read_info(folder)
        if info is None or (info.manifest, info.size) != (wanted.manifest, wanted.size):
            return None
        files = Files(str(folder), folder)
        for split, shards in info.splits.items():
            for number, shard in enumerate(shards):
                files.verified(file_name(split, number), shard)
        return info
    return None


class StatesWriter:
    """Writes the states of rows in order, after those that an earlier writer of a folder left.

    Args:
        folder: of this encoder's incomplete states; it is made. info: without files. sentences: S.

    Raises:
        CheckpointError: something in it is a link. OSError: the disk refuses.
    """

    def __init__(self, folder: Path, info: StatesInfo, sentences: int) -> None:
        self._folder = folder
        self._schema = states_schema(sentences, info.size)
        intact = intact_states(folder, info)
        if intact is None:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        refuse_links(folder)
        self.info = intact or info

    def write(self, split: str, blocks: Iterable[Sequence[tuple[Array, ...]]]) -> None:
        """Add the next rows, some at a time: the states of each, S x [N_s, H]."""
        done = self.info.splits.get(split, ())
        batches = (self._batch(split, block) for block in blocks)
        for file in write_shards(self._folder, f"states-{split}", self._schema, batches, len(done)):
            sync_file(self._folder / file_name(split, len(done)))
            done = (*done, file)
            splits = {**self.info.splits, split: done}
            self.info = self.info.model_copy(update={"splits": splits})
            replace_file(self._folder / STATES_FILE, self.info.model_dump_json(indent=1))

    def _batch(self, split: str, rows: Sequence[tuple[Array, ...]]) -> Any:
        """The record batch of some rows."""
        columns = [self._column(split, slot) for slot in zip(*rows, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _column(self, split: str, rows: Sequence[Array]) -> Any:
        """list<fixed_size_list<H>>, one element per row."""
        offsets = np.cumsum([0, *map(len, rows)], dtype=np.int32)
        with np.errstate(over="ignore"):
            states = np.concatenate(rows).astype(np.float16)
        if not np.isfinite(states).all():
            remedy = "Name another encoder, or fewer --layers"
            raise DataError("a state does not fit into float16", where=split, remedy=remedy)
        tokens = pa.FixedSizeListArray.from_arrays(pa.array(states.reshape(-1)), self.info.size)
        return pa.ListArray.from_arrays(pa.array(offsets), tokens)


def states_schema(sentences: int, size: int) -> Any:
    """The columns of a file: states_s, list<fixed_size_list<float16, H>>, for sentence slot s."""
    kind = pa.list_(pa.list_(pa.float16(), size))
    return pa.schema([(f"states_{slot}", kind) for slot in range(sentences)])


class StatesReader:
    """The states of a split, read from memory maps.

    Args:
        files: of the data. info: of `open_states`. split: its name. sentences: S.
    """

    def __init__(self, files: Files, info: StatesInfo, split: str, sentences: int) -> None:
        self._files, self.info, self._split = files, info, split
        self._schema = states_schema(sentences, info.size)
        rows = (file.rows for file in info.splits[split])
        self._starts = np.cumsum([0, *rows], dtype=np.int64)
        self._file = lru_cache(_OPEN_FILES)(self._map)

    def row(self, row: int) -> list[Array]:
        """S x [N_s, H], views of the map.

        Raises:
            DataError: the file is missing or damaged.
        """
        number = int(np.searchsorted(self._starts, row, side="right")) - 1
        inside = row - int(self._starts[number])
        return [values[o[inside] : o[inside + 1]] for o, values in self._file(number)]

    def padded(self, rows: Sequence[int] | Array, valid: Sequence[Array]) -> tuple[Array, ...]:
        """S x [B, N_s, H], zeros on padding; `valid` is S x bool [B, N_s].

        Raises:
            DataError: a file is missing or damaged, or lengths differ from `valid`.
        """
        by_row = [self.row(int(row)) for row in rows]
        slots = []
        for slot, mask in enumerate(valid):
            states = np.zeros((*mask.shape, self.info.size), np.float16)
            parts = [states_of_row[slot] for states_of_row in by_row]
            if [len(part) for part in parts] != mask.sum(1).tolist():
                what = "has states for texts of other lengths"
                remedy = _again(self._files, self.info.encoding)
                raise DataError(what, where=self._files.location, remedy=remedy)
            if parts:
                states[mask] = np.concatenate(parts)
            slots.append(states)
        return tuple(slots)

    def _map(self, number: int) -> list[tuple[Array, Array]]:
        """Offsets [rows + 1] and states [tokens, H] of each slot of a file."""
        path = self.info.fetch(self._files, self._split, number)
        try:
            batch = read_batch(path, self._schema, self.info.splits[self._split][number].rows)
            batch.validate(full=True)
        except (OSError, ValueError) as error:  # Arrow's are among them
            what = str(error).splitlines()[0]
            remedy = _again(self._files, self.info.encoding)
            raise DataError(what, where=str(path), remedy=remedy) from error
        return [_views(column, self.info.size) for column in batch.columns]


def _views(column: Any, size: int) -> tuple[Array, Array]:
    numbers = column.values.values.to_numpy(zero_copy_only=True)
    return column.offsets.to_numpy(zero_copy_only=True), numbers.reshape(-1, size)

"""Preparing streams: record batches are bounded, and memory does not grow with the corpus."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rss_rl.data import shard, staging
from rss_rl.data.column_files import Columns, column_files
from rss_rl.data.prepare import prepare
from rss_rl.data.sources import RawExample
from rss_rl.data.store import open_prepared


def test_record_batches_are_bounded(
    tmp_path: Path, list_source: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tuple(f"w{i % 50}" for i in range(50_000))
    rows = [RawExample(str(i), (long if i % 2 else ("short",),), "ab"[i % 2]) for i in range(14)]
    monkeypatch.setattr(shard, "SHARD_BYTES", 1)  # a shard for each batch
    monkeypatch.setattr(staging, "_BLOCK_TOKENS", 1 << 17)
    for most, batches in ((4, 4), (100, 3)):
        monkeypatch.setattr(staging, "BLOCK_ROWS", most)
        prepare(list_source({"train": rows}), tmp_path / "out", dim=2, force=True)
        split = open_prepared(tmp_path / "out").split("train")
        assert len(split.shard_rows) == batches
        assert max(split.shard_rows) <= most
    assert split.words(13) == (long,)
    assert split.batch([12, 13]).valid[0].sum(axis=1).tolist() == [1, 50_000]


def peak_of(path: Path, rows: int, out: Path) -> int:
    with path.open("w", encoding="utf-8") as stream:
        stream.write("text,label\n")
        for i in range(rows):
            words = " ".join(f"word{(i * k) % 400}" for k in range(1, 13))
            stream.write(f"{words},{i % 2}\n")
    source = column_files([path], Columns(("text",), "label"))
    gc.collect()  # what earlier tests left must not be freed while we measure
    tracemalloc.start()
    allocated = pa.total_allocated_bytes()
    highest = 0

    def watch(what: str, done: int, end: int | None) -> None:
        nonlocal highest
        highest = max(highest, pa.total_allocated_bytes() - allocated)

    prepare(source, out, dim=2, progress=watch)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak + highest


def test_memory_does_not_grow_with_the_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "BLOCK_ROWS", 100)
    monkeypatch.setattr(shard, "SHARD_BYTES", 50_000)
    peak_of(tmp_path / "warm.csv", 300, tmp_path / "warm")  # imports and caches
    small = peak_of(tmp_path / "small.csv", 600, tmp_path / "a")
    large = peak_of(tmp_path / "large.csv", 8_000, tmp_path / "b")
    assert large < 1.5 * small
    sizes = [sum(path.stat().st_size for path in (tmp_path / n).glob("train-*")) for n in "ab"]
    assert sizes[1] > 12 * sizes[0]

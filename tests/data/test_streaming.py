"""Preparing streams: record batches are bounded, and memory does not grow with the corpus."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from rss_rl.data.column_files import Columns, column_files
from rss_rl.data.prepare import prepare
from rss_rl.data.sources import RawExample
from rss_rl.data.store import open_prepared


def test_record_batches_are_bounded(tmp_path: Path, list_source: Callable[..., Any]) -> None:
    long = tuple(f"w{i % 50}" for i in range(100_000))
    rows = [RawExample(str(i), (long if i % 2 else ("short",),), "ab"[i % 2]) for i in range(14)]
    prepare(list_source({"train": rows}), tmp_path / "out", dim=2, batch_rows=4)
    with pa.memory_map(str(tmp_path / "out" / "train-00000.arrow")) as file:
        reader = pa.ipc.open_file(file)
        sizes = [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)]
    assert sum(sizes) == 14
    assert max(sizes) <= 4
    prepare(list_source({"train": rows}), tmp_path / "out", dim=2, batch_rows=100, force=True)
    with pa.memory_map(str(tmp_path / "out" / "train-00000.arrow")) as file:
        reader = pa.ipc.open_file(file)
        assert reader.num_record_batches == 3
    split = open_prepared(tmp_path / "out").split("train")
    assert split.words(13) == (long,)
    assert split.batch([12, 13]).valid[0].sum(axis=1).tolist() == [1, 100_000]


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

    prepare(source, out, dim=2, batch_rows=100, progress=watch)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak + highest


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    peak_of(tmp_path / "warm.csv", 300, tmp_path / "warm")  # imports and caches
    small = peak_of(tmp_path / "small.csv", 600, tmp_path / "a")
    large = peak_of(tmp_path / "large.csv", 12_000, tmp_path / "b")
    assert large < 1.5 * small
    assert (tmp_path / "b" / "train-00000.arrow").stat().st_size > 15 * (
        tmp_path / "a" / "train-00000.arrow"
    ).stat().st_size

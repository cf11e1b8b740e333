"""Folders of Parquet files with texts, and what scoring made of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

WORDS = ("the", "a", "film", "with", "scene", "warm", "dull", "bright", "unseen")


def texts_folder(folder: Path, rows: Mapping[str, int]) -> Path:
    """A file of random texts for each name, with as many rows."""
    draw = np.random.default_rng(len(rows))
    for name, count in rows.items():
        texts = [" ".join(draw.choice(WORDS, int(draw.integers(1, 12)))) for _ in range(count)]
        write_texts(folder / name, texts)
    return folder


def write_texts(path: Path, texts: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": range(len(texts)), "review": texts}), path)


def outputs(folder: Path) -> dict[str, bytes]:
    """Everything in a folder, by name."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }

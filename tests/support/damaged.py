"""Prepared directories to damage, and reading all that can be read of one."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

from rss_rl.data.store import open_prepared
from rss_rl.durable import file_sha256

ROWS = 24
SHARD = "train-00000.arrow"
_POOL_BYTES = 4 * 2**20
"""Far more than reading the small files takes, far less than what hostile ones ask for."""


def copy_files(source: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    for path in source.iterdir():
        (target / path.name).write_bytes(path.read_bytes())


def use(folder: Path) -> None:
    """Read everything that can be read, in bounded memory."""
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    highest = pool.max_memory()
    try:
        prepared = open_prepared(folder)
        _ = prepared.vocabulary.words, prepared.vectors().max()
        split = prepared.split("train")
        lengths = split.lengths()
        batch = split.batch(range(len(split)))
        assert batch.valid[0].sum(axis=1).tolist() == lengths[:, 0].tolist()
        assert batch.tokens[0].max() < len(prepared.vocabulary)
        _ = [(split.words(row), split.example_id(row).encode()) for row in range(len(split))]
        if prepared.labels.kind == "classes":
            _ = [prepared.labels.names[label] for label in batch.labels]
    finally:
        # Arrow's only number is the highest ever: earlier tests may have been higher.
        assert pool.max_memory() <= max(highest, before + _POOL_BYTES)


def refit(folder: Path, rows: int | None = None) -> None:
    """Let the manifest agree with the files, so that their content is looked at.

    Args:
        rows: of the first shard, which is the only one.
    """
    path = folder / "manifest.json"
    tree = json.loads(path.read_text())
    split = tree["splits"]["train"]
    if rows is not None:
        split["rows"] = split["shards"][0]["rows"] = rows
    found = {"vocabulary.json": tree["vocabulary"], "vectors.safetensors": tree["vectors"]}
    for name, entry in (found | {SHARD: split["shards"][0]}).items():
        if (folder / name).stat().st_size:
            entry |= {"bytes": (folder / name).stat().st_size}
            entry |= {"sha256": file_sha256(folder / name)}
    path.write_text(json.dumps(tree))

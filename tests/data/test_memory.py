"""A pass over data many times larger than the memory it may take."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import resident

from rss_rl.data.manifest import shard_file
from rss_rl.data.prepare import prepare
from rss_rl.data.sources import RawExample
from rss_rl.data.store import OPEN_SHARDS

SHARDS, SHARD_ROWS = 50, 30_000
BUDGET_MB = 6.0


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the system tells no memory")
def test_a_pass_over_the_data_holds_a_bounded_part_of_them(
    tmp_path: Path, list_source: Callable[..., Any]
) -> None:
    rows = [
        RawExample(str(i), ((f"w{i % 7}",) * (1 + i % 4),), "ab"[i % 2]) for i in range(SHARD_ROWS)
    ]
    out = tmp_path / "out"
    prepare(list_source({"train": rows}), out, dim=2)
    shard = out / shard_file("train", 0)
    megabytes = shard.stat().st_size / 1e6
    # The same shard under many names is mapped under each of them.
    tree = json.loads((out / "manifest.json").read_text())
    split = tree["splits"]["train"]
    for number in range(1, SHARDS):
        os.link(shard, out / shard_file("train", number))
        split["shards"].append(split["shards"][0])
    split["rows"] = SHARDS * SHARD_ROWS
    (out / "manifest.json").write_text(json.dumps(tree))

    command = [sys.executable, resident.__file__, str(out), "128"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=100)
    found = json.loads(done.stdout)
    assert found["rows"] == SHARDS * SHARD_ROWS
    assert megabytes * SHARDS > 10 * BUDGET_MB
    # The lengths of all rows alone would take twice the budget.
    assert found["rows"] * 8 > 1.9e6 * BUDGET_MB
    assert found["peak_mb"] - found["early_mb"] < BUDGET_MB / 2
    limit = [*command[:-2], str(_few(out)), "128"]
    small = json.loads(subprocess.run(limit, check=True, capture_output=True, text=True).stdout)
    assert small["rows"] == SHARD_ROWS
    assert found["peak_mb"] - small["peak_mb"] < BUDGET_MB
    assert found["mapped_mb"] - small["mapped_mb"] < (OPEN_SHARDS + 1) * megabytes


def _few(out: Path) -> Path:
    """The same dataset with its first shard alone."""
    tree = json.loads((out / "manifest.json").read_text())
    split = tree["splits"]["train"]
    split |= {"rows": SHARD_ROWS, "shards": split["shards"][:1]}
    few = out.with_name("few")
    few.mkdir()
    for name in ("vocabulary.json", "vectors.safetensors", shard_file("train", 0)):
        os.link(out / name, few / name)
    (few / "manifest.json").write_text(json.dumps(tree))
    return few

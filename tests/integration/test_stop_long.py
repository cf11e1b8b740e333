"""SIGTERM is heeded within ten seconds in the midst of an update that takes minutes."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import WORDS, command_line, tiny_tree

from rss_rl.data.batch_order import BatchOrder
from rss_rl.data.prepare import prepare
from rss_rl.data.sources import RawExample, ReaderSource
from rss_rl.data.store import open_prepared
from rss_rl.runs.checkpoint import load_checkpoint
from rss_rl.types import LabelSpec

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
LONG, SHORT = 100_000, 7
LIMIT_S = 10.0


def read_one_long_text(split: str) -> Iterator[RawExample]:
    """Short texts, and in train one of 100,000 words."""
    lengths = [4] * SHORT + ([LONG] if split == "train" else [])
    for row, length in enumerate(lengths):
        words = tuple(WORDS[("no", "yes")[(row + n) % 2]][n % 2] for n in range(length))
        yield RawExample(f"{split}-{row}", (words,), ("no", "yes")[row % 2])


ONE_LONG_TEXT = ReaderSource(
    "long",
    1,
    LabelSpec("classes", ("no", "yes")),
    dict.fromkeys(("train", "dev", "test"), ()),
    read_one_long_text,
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("long") / "prepared"
    prepare(ONE_LONG_TEXT, folder, dim=64)
    return folder


def before_the_long_one(data: Path) -> tuple[int, int]:
    """A seed, and the updates that it has before that of the long text."""
    split = open_prepared(data).split("train")
    for seed in range(50):
        order = BatchOrder(split, 1, seed)
        number = next(n for n in range(SHORT + 1) if split.lengths(order.rows(n)).max() == LONG)
        if number > 1:
            return seed, number
    raise AssertionError


def tree_of(data: Path, seed: int) -> dict[str, Any]:
    """Of a model that takes minutes for the long text in one operation of torch."""
    model = {"encoder": "bilstm", "hidden": 300}
    phase = {"name": "warm-up", "supervised": True, "selection": "all", "steps": SHORT + 1}
    tree = tiny_tree(data) | {"seed": seed, "batch_size": 1, "model": model, "phases": [phase]}
    tree["evaluation"] = {"every": 1, "all_tokens": False}
    tree["sampler"] = {"selections": 2, "shards": 1}
    return tree


def test_it_ends_with_the_updates_before(data: Path, tmp_path: Path) -> None:
    seed, number = before_the_long_one(data)
    config = tmp_path / "long.yaml"
    config.write_text(json.dumps(tree_of(data, seed)))  # JSON is YAML
    process = command_line("train", config, "--run-dir", "run", cwd=tmp_path)
    timer = threading.Timer(200, process.kill)
    timer.start()
    try:
        assert process.stdout is not None
        seen = 0
        for line in process.stdout:
            seen += "dev: " in line
            if seen == number + 1:  # the opening evaluation, and one after each short update
                break
        assert seen == number + 1, process.stderr and process.stderr.read()
        time.sleep(3.0)
        assert process.poll() is None
        sent = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        took = time.monotonic() - sent
    finally:
        timer.cancel()
        process.kill()
    assert process.returncode == 143, err
    assert took < LIMIT_S
    assert "within an update" in err
    assert "rss-rl train --resume" in err
    assert load_checkpoint(tmp_path / "run").step == number
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "stopped"

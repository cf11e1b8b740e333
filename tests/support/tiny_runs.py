"""A tiny dataset with a known rationale, a tiny run, and what two equal runs must agree in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rss_rl.config import RunConfig
from rss_rl.data.sources import RawExample, Source
from rss_rl.logs.metrics import read_metrics
from rss_rl.runs.checkpoint import load_checkpoint
from rss_rl.training.run import ALL_TOKENS, train
from rss_rl.training.trainer import Updated
from rss_rl.types import LabelSpec

ROWS = {"train": 96, "dev": 24, "test": 24}
BATCH, UPDATES = 16, 27
UPDATES_AN_EPOCH = ROWS["train"] // BATCH
WORDS = {"yes": ("warm", "bright"), "no": ("cold", "dull")}
FILLERS = ("the", "a", "film", "with", "scene", "and", "of", "was", "in", "one")
TIMES = (
    "time/",
    "throughput/",
    "storage/",
    "publish/",
    "learner/",
    "sampler/",
)
"""Tags that say how long a run took and what it had to move, which a restart does anew."""


def tiny_source(rows: Mapping[str, int] = ROWS, fillers: Sequence[str] = FILLERS) -> Source:
    """Sentences of 4 to 12 words of which one decides the class."""

    def read(split: str) -> Iterator[RawExample]:
        draw = np.random.default_rng([list(rows).index(split), 7])
        for row in range(rows[split]):
            label = ("no", "yes")[int(draw.integers(2))]
            words = [str(word) for word in draw.choice(fillers, int(draw.integers(4, 13)))]
            place = int(draw.integers(len(words)))
            words[place] = str(draw.choice(WORDS[label]))
            bits = tuple(n == place for n in range(len(words)))
            yield RawExample(f"{split}-{row}", (tuple(words),), label, (bits,))

    return Source("tiny", 1, LabelSpec("classes", ("no", "yes")), dict.fromkeys(rows, ()), read)


def tiny_tree(data: Path) -> dict[str, Any]:
    """27 updates in three phases, and 17 more with all tokens."""
    return {
        "data": str(data),
        "batch_size": BATCH,
        "model": {"hidden": 8, "activation": "relu"},
        "policy": {"options": {"hidden": 8, "initial_probability": 0.7}},
        "learner": {
            "threads": 1,
            "supervised": {"learning_rate": 0.02},
            "policy": {"learning_rate": 0.02},
        },
        "sampler": {"selections": 2, "shards": 3, "timeout_s": 60},
        "evaluation": {"every": 4, "selections": 2},
        "checkpoint": {"every": 3, "keep_last": 2, "keep": "all"},
        "phases": [
            {"name": "warm-up", "supervised": True, "selection": "all", "steps": 10}
            | {"restore_best": True},
            {"name": "frozen", "policy": True, "steps": 7},
            {"name": "co-train", "supervised": True, "policy": True, "steps": 10},
        ],
    }


@dataclass(frozen=True)
class Outcome:
    """All that a run leaves behind, except times.

    tensors  of the last and the best checkpoint, by part of the run, mark and name
    metrics  (step, tag, value) in the order they were written, without `TIMES`, by part of the run
    report   report.json without times
    """

    tensors: dict[str, np.ndarray[Any, Any]]
    metrics: dict[str, list[tuple[int, str, float]]]
    report: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> Outcome:
        tensors, metrics = {}, {}
        parts = {"run": path, ALL_TOKENS: path / ALL_TOKENS}
        if not json.loads((path / "config.json").read_text())["config"]["evaluation"]["all_tokens"]:
            del parts[ALL_TOKENS]
        for name, part in parts.items():
            for mark in ("latest", "best"):
                for key, value in load_checkpoint(part, mark).tensors.items():
                    tensors[f"{name}/{mark}/{key}"] = value
            metrics[name] = [
                (row["step"], row["tag"], row["value"])
                for row in read_metrics(part).to_pylist()
                if not row["tag"].startswith(TIMES)
            ]
        report = json.loads((path / "report.json").read_text())
        for name in ("wall_seconds", "examples_per_second"):
            assert report.pop(name) > 0
        return cls(tensors, metrics, report)

    def assert_equals(self, other: Outcome) -> None:
        """Equal to the bit, with a message that names the first difference."""
        assert self.tensors.keys() == other.tensors.keys()
        for name, value in self.tensors.items():
            assert value.dtype == other.tensors[name].dtype, name
            assert value.tobytes() == other.tensors[name].tobytes(), name
        for part, found in self.metrics.items():
            for mine, theirs in zip(found, other.metrics[part], strict=True):
                assert mine == theirs, part
        assert self.report == other.report


def reports_of(events: Iterable[object]) -> list[Updated]:
    """The updates of the main part of a run, without those of the comparison."""
    updates = [event for event in events if isinstance(event, Updated)]
    return [update for update in updates if update.phase != ALL_TOKENS]


def stop_and_resume(config: RunConfig, path: Path, updates: int) -> None:
    """Train in this process, stopped after so many updates and resumed to the end."""
    made: list[Updated] = []
    for event in train(config, path, stop=lambda: len(made) >= updates):
        if isinstance(event, Updated):
            made.append(event)
    list(train(config, path, resume=True))


def assert_each_example_once_an_epoch(reports: Iterable[Updated]) -> None:
    """No row is lost or learnt from twice; an update made again has the rows it had before."""
    rows: dict[int, list[int]] = {}
    for report in reports:
        assert rows.setdefault(report.update, report.rows.tolist()) == report.rows.tolist()
    assert sorted(rows) == list(range(1, UPDATES + 1))
    for first in range(1, UPDATES - UPDATES_AN_EPOCH + 2, UPDATES_AN_EPOCH):
        epoch = [row for update in range(first, first + UPDATES_AN_EPOCH) for row in rows[update]]
        assert sorted(epoch) == list(range(ROWS["train"]))


def command_line(*arguments: object, cwd: Path) -> subprocess.Popen[str]:
    """Start `rss-rl` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "rss_rl.cli.main", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )

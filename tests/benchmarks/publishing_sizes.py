"""What a publication costs by the number of words, and by what changed: a table and a JSON file.

python tests/benchmarks/publishing_sizes.py [--words 5000 40000 400000] [--json OUT.json]

A learner publishes and samplers load in this process, one after another: bytes of a snapshot,
milliseconds of the copies that are made for them all and of the loads of 1 and of 8 samplers,
medians. With samplers in Ray actors, the copy is that in a node's object store.

everything   all parts, as the first snapshot of a phase or for a sampler that starts anew
policy       what a frozen phase changes
rows         classifier, policy and the word vectors of a batch's words
whole table  the same with all word vectors
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from peer_task import LABELS

from rss_rl.config import RunConfig
from rss_rl.rollouts.snapshot import (
    CLASSIFIER,
    POLICY,
    WORDS,
    Models,
    Publisher,
    Snapshot,
    build_models,
)
from rss_rl.training.allocator import keep_freed_memory

SIZE, ROWS, REPEATS, SAMPLERS = 300, 1000, 5, 8
CHANGES = ("everything", "policy", "rows", "whole table")


def models_of(words: int) -> Models:
    """ReSAN of SICK's size over so many trainable word vectors."""
    tree = {
        "data": "none",
        "model": {"hidden": 300},
        "phases": [{"name": "policy", "policy": True, "steps": 1}],
    }
    vectors = np.zeros((words, SIZE), np.float32)
    return build_models(RunConfig.model_validate(tree), LABELS, 2, vectors, words)


def publish(publisher: Publisher, change: str, words: int, version: int) -> Snapshot:
    """A snapshot of what such an update changes."""
    if change == "everything":
        return publisher.publish(version, whole=True)
    publisher.note(POLICY)
    if change != "policy":
        publisher.note(CLASSIFIER)
        publisher.note(WORDS, torch.randperm(words)[:ROWS] if change == "rows" else None)
    return publisher.publish(version, whole=False)


def measure(words: int) -> list[dict[str, Any]]:
    """One row for each change."""
    learner, sampler = models_of(words), models_of(words)
    publisher, rows = Publisher(learner), list[dict[str, Any]]()
    sampler.load(publisher.publish(0, whole=True))
    sampler.load(publisher.publish(0, whole=True))
    before = 0.0
    for change in CHANGES:
        copies, loads, sizes = [], [], []
        for version in range(REPEATS):
            started = time.perf_counter()
            snapshot = publish(publisher, change, words, version)
            snapshot = Snapshot(version, tuple(delta.copied() for delta in snapshot.deltas))
            copied = time.perf_counter()
            for _ in range(SAMPLERS):
                sampler.load(snapshot)
            ended = time.perf_counter()
            copies.append(1000 * (copied - started))
            loads.append(1000 * (ended - copied) / SAMPLERS)
            sizes.append(snapshot.bytes)
        one, eight = (median(copies) + count * median(loads) for count in (1, SAMPLERS))
        before = before or one
        rows.append({
            "words": words, "changed": change, "MB": median(sizes) / 1e6, "copy ms": median(copies),
            "1 sampler, ms": one, f"{SAMPLERS} samplers, ms": eight, "of everything": one / before,
        })  # fmt: skip
    return rows


def report(about: str, measure_all: Callable[[list[int]], list[dict[str, Any]]]) -> None:
    """A program that measures for numbers of words, prints a table and writes JSON."""
    parser = argparse.ArgumentParser(description=about.partition("\n")[0])
    parser.add_argument("--words", type=int, nargs="+", default=[5000, 40_000, 400_000])
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as a learner does
    measured = measure_all(given.words)
    print("| " + " | ".join(measured[0]) + " |", "|" + "---|" * len(measured[0]), sep="\n")
    for row in measured:
        shown = (f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values())
        print("| " + " | ".join(shown) + " |")
    if given.json is not None:
        given.json.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    report(__doc__, lambda words: [row for count in words for row in measure(count)])

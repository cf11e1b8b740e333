"""Tiny tasks that choose: the sentence with the colour asked for, the name that follows a word."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rss_rl.data.sources import BadRow, RawExample, Source
from rss_rl.types import LabelSpec

ROWS = {"train": 192, "dev": 48, "test": 48}
FILLERS = ("the", "a", "film", "with", "scene", "and", "of", "was", "in", "one")
COLOURS = ("red", "blue")
NAMES = ("ann", "bob", "cid", "dan", "eve")


def read_planted_sentences(split: str) -> Iterator[RawExample | BadRow]:
    """Three or four sentences of 2 to 5 words; each colour stands in one, and one is asked for."""
    draw = np.random.default_rng([list(ROWS).index(split), 1])
    for row in range(ROWS[split]):
        passage = [
            [str(w) for w in draw.choice(FILLERS, int(draw.integers(2, 6)))]
            for _ in range(int(draw.integers(3, 5)))
        ]
        places = draw.permutation(len(passage))[: len(COLOURS)]
        for colour, place in zip(COLOURS, places, strict=True):
            passage[place][int(draw.integers(len(passage[place])))] = colour
        asked = int(draw.integers(len(COLOURS)))
        yield RawExample(
            f"{split}-{row}",
            (tuple(w for s in passage for w in s), ("where", "is", COLOURS[asked])),
            int(places[asked]),
            marks=tuple(k for k, s in enumerate(passage) for _ in s),
        )


PLANTED_SENTENCES = Source(
    "planted-sentences", 2, LabelSpec("sentence"), dict.fromkeys(ROWS, ()), read_planted_sentences
)


def read_planted_names(split: str) -> Iterator[RawExample | BadRow]:
    """Ten words with three names, of which one follows 'key'; it fills the blank."""
    draw = np.random.default_rng([list(ROWS).index(split), 2])
    for row in range(ROWS[split]):
        words = [str(w) for w in draw.choice(FILLERS, 10)]
        names = [str(n) for n in draw.choice(NAMES, 3, replace=False)]
        for name, place in zip(names, (1, 4, 8), strict=True):
            words[place] = name
        answer = int(draw.integers(3))
        words[(1, 4, 8)[answer] - 1] = "key"
        yield RawExample(
            f"{split}-{row}",
            (tuple(words), ("the", "key", "is", "@placeholder")),
            answer,
            marks=tuple(names.index(w) if w in names else -1 for w in words),
        )


PLANTED_NAMES = Source(
    "planted-names", 2, LabelSpec("candidate"), dict.fromkeys(ROWS, ()), read_planted_names
)


def tree(data: Path, **model: Any) -> dict[str, Any]:
    """A short warm-up, and co-training that pays for reading."""
    return {
        "data": str(data),
        "batch_size": 24,
        "model": {"hidden": 12, "dropout": 0.1, **model},
        "policy": {"options": {"hidden": 8, "initial_probability": 0.8}},
        "reward": {"sparsity_cost": 0.4},
        "learner": {
            "supervised": {"learning_rate": 0.02, "clip_norm": 10.0},
            "policy": {"learning_rate": 0.05},
        },
        "sampler": {"selections": 3, "shards": 2},
        "evaluation": {"every": 20, "selections": 2, "all_tokens": False, "best_metric": "reward"},
        "phases": [
            {"name": "warm-up", "supervised": True, "selection": "all", "steps": 60}
            | {"restore_best": True},
            {"name": "co-train", "supervised": True, "policy": True, "steps": 40},
        ],
    }

"""Tasks that choose, through the whole trainer: learnt, selected and evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rss_rl.config import parse_config
from rss_rl.data.prepare import prepare
from rss_rl.data.sources import BadRow, RawExample, Source
from rss_rl.errors import ConfigError
from rss_rl.inference.model import load_model
from rss_rl.results.scores import score_run
from rss_rl.training.run import Finished, train
from rss_rl.training.trainer import Evaluated
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


def run(source: Source, folder: Path, **model: Any) -> tuple[Path, list[object]]:
    prepare(source, folder / "data", dim=8)
    config = parse_config(tree(folder / "data", **model), where="test")
    return folder / "run", list(train(config, folder / "run"))


def check_learnt(path: Path, events: list[object], accuracy: float) -> None:
    """Better than chance, by selections that leave words out; what was stored scores the same."""
    last = events[-1]
    assert isinstance(last, Finished)
    scores = last.report["splits"]["test"]
    assert scores["thresholded"]["accuracy"] > accuracy
    assert scores["thresholded"]["kept"] < 0.9
    opening = next(e for e in events if isinstance(e, Evaluated))
    assert opening.metrics["all"]["accuracy"] < 0.5  # so that something was learnt
    again = score_run(path, "test", ["thresholded"])
    assert again["thresholded"] == scores["thresholded"]


def test_the_right_sentence_is_learnt_to_be_chosen(tmp_path: Path) -> None:
    path, events = run(PLANTED_SENTENCES, tmp_path, encoder="source2token")
    check_learnt(path, events, 0.75)  # chance 0.29
    with pytest.raises(ConfigError, match="a new passage does not say what there is to choose"):
        load_model(path)


def test_the_right_candidate_is_learnt_to_be_chosen(tmp_path: Path) -> None:
    path, events = run(
        PLANTED_NAMES,
        tmp_path,
        classifier={"name": "cloze", "options": {"hidden": 8}},
    )
    check_learnt(path, events, 0.75)  # chance 0.33

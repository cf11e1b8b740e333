"""Rival answers to one question: MAP and MRR in training, in reports, in the choice of the best."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rss_rl.config import RunConfig, parse_config
from rss_rl.data.prepare import prepare
from rss_rl.data.sources import RawExample, Source
from rss_rl.errors import ConfigError
from rss_rl.training.run import Finished, train
from rss_rl.training.trainer import Evaluated
from rss_rl.types import LabelSpec

QUESTIONS = {"train": 24, "dev": 8, "test": 8}


def rivals(*, keyed: bool = True) -> Source:
    """Four answers to each question, of which the one with 'gold' is right; one question has none.

    keyed  whether rows say which question they answer.
    """

    def read(split: str) -> Iterator[RawExample]:
        draw = np.random.default_rng([list(QUESTIONS).index(split), 3])
        for number in range(QUESTIONS[split]):
            right = int(draw.integers(4)) if number else -1
            for answer in range(4):
                words = [str(w) for w in draw.choice(("a", "b", "c"), 3)]
                yield RawExample(
                    f"{split}-{number}-{answer}",
                    (("where", "is", "it"), (*words, "gold" if answer == right else "lead")),
                    "right" if answer == right else "wrong",
                    question=f"question {number}" if keyed else None,
                )

    labels = LabelSpec("classes", ("wrong", "right"))
    return Source("rivals", 2, labels, dict.fromkeys(QUESTIONS, ()), read)


def config(data: Path) -> RunConfig:
    phase = {"name": "all", "supervised": True, "selection": "all", "steps": 20}
    return parse_config(
        {
            "data": str(data),
            "batch_size": 16,
            "model": {"hidden": 4, "encoder": "mean", "dropout": 0.0},
            "learner": {"supervised": {"learning_rate": 0.05}},
            "evaluation": {"every": 5, "best_metric": "map", "all_tokens": False},
            "phases": [phase],
        },
        where="test",
    )


def test_the_best_checkpoint_is_that_of_the_best_map(tmp_path: Path) -> None:
    prepare(rivals(), tmp_path / "data", dim=4)
    events = list(train(config(tmp_path / "data"), tmp_path / "run"))
    scored = [e.metrics["all"] for e in events if isinstance(e, Evaluated)]
    assert scored[0]["map"] < scored[-1]["map"] == 1.0
    last = events[-1]
    assert isinstance(last, Finished)
    test = last.report["splits"]["test"]["all"]
    assert test["map"] == test["mrr"] == 1.0
    assert test["map_all"] == test["mrr_all"] == 7 / 8  # nothing can be right for one question


def test_a_map_without_rival_answers_is_refused(tmp_path: Path) -> None:
    prepare(rivals(keyed=False), tmp_path / "data", dim=4)
    with pytest.raises(ConfigError, match="dev has no 'map'"):
        next(train(config(tmp_path / "data"), tmp_path / "run"))

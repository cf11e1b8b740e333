"""A tiny prepared dataset with rationales, and a configuration that fits it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rss_rl.config import RunConfig, parse_config
from rss_rl.data.prepare import prepare
from rss_rl.data.sources import BadRow, RawExample, Source
from rss_rl.data.store import Prepared, open_prepared
from rss_rl.seeding import generator
from rss_rl.types import LabelSpec

_FILLER = tuple(f"w{n}" for n in range(20))
_ROWS = {"train": 48, "dev": 20, "test": 20}


def read_tiny_pairs(split: str) -> Iterator[RawExample | BadRow]:
    """Pairs of 2 to 9 given tokens; the label says whether both hold 'yes', the planted token."""
    draw = generator(0, "tiny", split)
    for row in range(_ROWS[split]):
        texts, marks = [], []
        for _ in range(2):
            words = [_FILLER[int(i)] for i in draw.integers(0, 20, draw.integers(2, 10))]
            place = int(draw.integers(0, len(words)))
            words[place] = "yes" if draw.random() < 0.5 else "no"
            texts.append(tuple(words))
            marks.append(tuple(n == place for n in range(len(words))))
        label = "together" if all("yes" in text for text in texts) else "apart"
        yield RawExample(f"{split}-{row}", tuple(texts), label, tuple(marks))


TINY_PAIRS = Source(
    "tiny",
    2,
    LabelSpec("classes", ("apart", "together")),
    dict.fromkeys(_ROWS, ()),
    read_tiny_pairs,
)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("data") / "tiny"
    prepare(TINY_PAIRS, folder, dim=6)
    return open_prepared(folder)


@pytest.fixture(scope="session")
def tiny_config(tiny: Prepared) -> RunConfig:
    return parse_config(
        {
            "data": str(tiny.folder),
            "batch_size": 8,
            "model": {"hidden": 5},
            "policy": {"options": {"hidden": 5}},
            "learner": {"threads": 1},
            "evaluation": {"every": 3},
            "checkpoint": {"keep": "all"},
            "phases": [
                {"name": "warm-up", "supervised": True, "selection": "all", "steps": 4},
                {"name": "frozen", "policy": True, "steps": 3},
                {"name": "co-train", "supervised": True, "policy": True, "steps": 5},
            ],
        },
        where="test",
    )

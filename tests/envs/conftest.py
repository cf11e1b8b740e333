"""Small examples and reward models for the environment tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from rss_rl.types import Array, Batch, LabelSpec


class TinyExamples:
    """An ExampleSource of random token ids, each sentence of its own length."""

    def __init__(self, sentences: int = 1, size: int = 7, longest: int = 6, seed: int = 0) -> None:
        draw = np.random.default_rng(seed)
        self.sentences = sentences
        self.labels = LabelSpec("classes", ("no", "yes"))
        self._lengths = draw.integers(1, longest + 1, (size, sentences))
        self._lengths[0] = longest
        self._tokens = draw.integers(2, 50, (size, sentences, longest))
        self._labels = draw.integers(0, 2, size)

    def __len__(self) -> int:
        return len(self._lengths)

    def lengths(self) -> Array:
        return self._lengths.astype(np.int64)

    def words(self, row: int) -> tuple[tuple[str, ...], ...]:
        return tuple(
            tuple(f"w{token}" for token in self._tokens[row, s, : self._lengths[row, s]])
            for s in range(self.sentences)
        )

    def batch(self, rows: Sequence[int] | Array) -> Batch:
        index = np.asarray(rows, dtype=np.int64)
        tokens, valid = [], []
        for s in range(self.sentences):
            lengths = self._lengths[index, s]
            real = np.arange(int(lengths.max(initial=0))) < lengths[:, None]
            tokens.append(np.where(real, self._tokens[index, s, : real.shape[1]], 0))
            valid.append(real)
        return Batch(index, tuple(tokens), tuple(valid), self._labels[index])


@dataclass
class CountingReward:
    """Score = -(sum of the selected ids + label) / 100; remembers its calls."""

    calls: list[int] = field(default_factory=list)

    def score(self, batch: Batch, selections: Sequence[Array]) -> Array:
        self.calls.append(len(batch))
        total = batch.labels.astype(np.float64)
        for tokens, selection in zip(batch.tokens, selections, strict=True):
            total = total + (selection * tokens[:, None, :]).sum((1, 2))
        return (-total / 100).astype(np.float32)


@pytest.fixture(params=[1, 2], ids=["single", "pair"])
def examples(request: pytest.FixtureRequest) -> TinyExamples:
    return TinyExamples(sentences=request.param)


@pytest.fixture
def pairs() -> TinyExamples:
    return TinyExamples(sentences=2)


@pytest.fixture
def texts() -> TinyExamples:
    return TinyExamples(size=64, longest=32)


@pytest.fixture
def reward_model() -> CountingReward:
    return CountingReward()

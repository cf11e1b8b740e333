"""What an update costs by the number of words: a table and a JSON file.

python tests/benchmarks/update_sizes.py [--words 5000 40000 400000] [--json OUT.json]

One classifier (ReSAN of SICK's size, 300 numbers a word) for each number of words learns from
batches of 32 pairs whose words are drawn evenly from all, with a running average of its weights,
and publishes to a sampler after each update. The sizes take turns, update by update; medians.
`against` is the time beside that of the fewest words. Flat is the last column within 20% of 1.

rows  an update costs what its batch has of words
all   Adam, the average and the publication go through every word
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import torch
from peer_task import LABELS
from publishing_sizes import SIZE, models_of, report

from rss_rl.config import OptimizerConfig
from rss_rl.learners.supervised import SupervisedLearner
from rss_rl.models.inputs import TensorBatch
from rss_rl.rollouts.snapshot import CLASSIFIER, WORDS, Publisher

PAIRS, TOKENS, REPEATS, WARM_UP, AVERAGE = 32, 10, 40, 5, 0.998


class Updates:
    """A learner of so many words that publishes after each update."""

    def __init__(self, words: int, optimiser: str, *, by_row: bool) -> None:
        self._words, self._models, self._sampler = words, models_of(words), models_of(words)
        config = OptimizerConfig.model_validate({"name": optimiser})
        classifier = self._models.classifier
        self._learner = SupervisedLearner(classifier, config, None, AVERAGE, by_row=by_row)
        self._publisher, self._number = Publisher(self._models), 0
        self._sampler.load(self._publisher.publish(0, whole=True))

    def __call__(self) -> tuple[float, float]:
        """Milliseconds of an update, and of its publication into the sampler."""
        shape = PAIRS, TOKENS
        tokens = [torch.randint(1, self._words, shape) for _ in range(2)]
        valid = [torch.ones(shape, dtype=torch.bool) for _ in range(2)]
        batch = TensorBatch(tokens, valid, torch.randint(len(LABELS.names), (PAIRS,)))
        started = time.perf_counter()
        self._learner.update(batch, None, number=self._number, dropout_keys=torch.arange(PAIRS))
        learnt = time.perf_counter()
        self._publisher.note(CLASSIFIER)
        self._publisher.note(WORDS, self._learner.moved_words)
        self._sampler.load(self._publisher.publish(self._number, whole=False))
        ended = time.perf_counter()
        self._number += 1
        return 1000 * (learnt - started), 1000 * (ended - learnt)


def measure(words: list[int], optimiser: str, *, by_row: bool) -> list[dict[str, Any]]:
    """A row for each number of words, which take turns."""
    torch.manual_seed(0)
    updates = [Updates(count, optimiser, by_row=by_row) for count in words]
    times: list[list[tuple[float, float]]] = [[] for _ in words]
    for repeat in range(WARM_UP + REPEATS):
        for update, taken in zip(updates, times, strict=True):
            both = update()
            if repeat >= WARM_UP:
                taken.append(both)
    learnt = [median(both[0] for both in taken) for taken in times]
    published = [median(both[1] for both in taken) for taken in times]
    return [
        {
            "optimiser": optimiser, "moves": "rows" if by_row else "all", "words": count,
            "update ms": update, "publication ms": publication, "against": update / learnt[0],
            "with publication": (update + publication) / (learnt[0] + published[0]),
        }
        for count, update, publication in zip(words, learnt, published, strict=True)
    ]  # fmt: skip


def measure_all(words: list[int]) -> list[dict[str, Any]]:
    optimisers = (("adam", True), ("adadelta", True), ("sgd", True), ("adam", False))
    print(f"{SIZE} numbers a word")
    return [row for name, by_row in optimisers for row in measure(words, name, by_row=by_row)]


if __name__ == "__main__":
    report(__doc__, measure_all)

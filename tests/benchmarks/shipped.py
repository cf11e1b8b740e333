"""What ships, as work to be timed: a training step, sampling and inference of a configuration.

Data are random pairs with the lengths of a published dataset; everything else is as the
configuration says: its batches, model, policy, precision, threads.
"""

from __future__ import annotations

__all__ = ["CONFIGS", "Work", "shipped_works"]

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from suite.training_step import HIDDEN, SIZES, Size, words_of

from rss_rl.config import load_config
from rss_rl.data.batch_order import BatchOrder
from rss_rl.data.prepare import prepare
from rss_rl.data.sources import RawExample, Source
from rss_rl.data.store import open_prepared
from rss_rl.learners.phases import Turn
from rss_rl.packaged import find_config
from rss_rl.reading.models import build_prepared_models
from rss_rl.rollouts.rollout import Job
from rss_rl.rollouts.sampler import Sampler
from rss_rl.training.learner import LocalLearner
from rss_rl.types import LabelSpec

CONFIGS = {"sick": "SICK", "snli": "SNLI"}
"""Shipped configurations, and the dataset that each is for."""


@dataclass(frozen=True)
class Work:
    """`run(number)` works on batch `number` of an epoch; a turn has `batches` of them."""

    run: Callable[[int], object]
    batches: int = 4


def _pairs(size: Size, labels: LabelSpec) -> Source:
    """Random pairs as long as a dataset's."""

    def read(split: str) -> Iterator[RawExample]:
        draw = np.random.default_rng(1)
        lengths = size.lengths()[: None if split == "train" else 256]
        for row, pair in enumerate(lengths):
            words = (words_of(size, (int(count),), draw) for count in pair)
            sentences = tuple(tuple(f"w{word}" for word in each) for each in words)
            label = row % 5 + 1.0 if labels.kind == "score" else labels.names[row % 3]
            yield RawExample(f"{split}-{row}", sentences, label)

    return Source("pairs", 2, labels, {"train": (), "dev": ()}, read)


def shipped_works(name: str, folder: Path) -> dict[str, Work]:
    """By name: updates of the first and the last phase, sampling, and inference.

    Args:
        name: of a configuration. folder: where the data are made, and are read from.
    """
    score = LabelSpec("score", low=1.0, high=5.0)
    labels = score if name == "sick" else LabelSpec("classes", ("a", "b", "c"))
    prepare(_pairs(SIZES[CONFIGS[name]], labels), folder, dim=HIDDEN)
    prepared = open_prepared(folder)
    config = load_config(find_config(name), [f"data={folder}"])
    learner = LocalLearner(config, prepared)
    sampler = Sampler(config, build_prepared_models(config, prepared), prepared.split("train"))
    sampler.load(learner.publish(0))
    order = BatchOrder(prepared.split("train"), config.batch_size, config.seed)

    def job(number: int) -> Job:
        rows, count = order.rows(number), config.sampler.selections
        return Job(number, 0, rows, selections=count, scored=True, thresholded=False)

    first, last = Turn(True, False, False), Turn(True, True, True)

    def warm_up(number: int) -> object:
        return learner.update(0, order.rows(number), first)

    def sampling(number: int) -> object:
        return sampler.sample(job(number))

    def co_train(number: int) -> object:
        rollout = sampler.sample(job(number))
        return learner.update(0, order.rows(number), last, rollout)

    def inference(number: int) -> object:
        return learner.evaluate("dev", ("thresholded",))

    return {
        "warm-up": Work(warm_up),
        "co-train": Work(co_train),
        "sampling": Work(sampling),
        "inference": Work(inference, batches=1),
    }

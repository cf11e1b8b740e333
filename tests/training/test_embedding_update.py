"""Word vectors by row in a run: what is published."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rss_rl.config import OptimizerConfig, RunConfig
from rss_rl.data.store import Prepared
from rss_rl.learners.phases import Turn
from rss_rl.reading.models import Models, build_prepared_models
from rss_rl.rollouts.snapshot import WORDS, Parts
from rss_rl.training.learner import LocalLearner

_WARM_UP = Turn(supervised=True, policy=False, sampled=False)


@pytest.fixture
def averaged(tiny_config: RunConfig) -> RunConfig:
    supervised = OptimizerConfig(learning_rate=0.05)
    change = {"weight_average": 0.9, "supervised": supervised}
    return tiny_config.model_copy(update={"learner": tiny_config.learner.model_copy(update=change)})


def words_of(models: Models) -> torch.Tensor:
    words = torch.arange(len(models.classifier.embedding.trainable))[None]
    return models.classifier.embedding(words)


def test_samplers_read_the_average_that_the_learner_has(
    averaged: RunConfig, tiny: Prepared
) -> None:
    """To the bit, whether they were given rows or everything."""
    learner = LocalLearner(averaged, tiny)
    by_rows, anew = (build_prepared_models(averaged, tiny) for _ in range(2))
    Parts(by_rows).load(learner.publish(0))
    sizes = []
    for number in range(6):
        learner.update(number, np.array([2 * number]), _WARM_UP)
        snapshot = learner.publish(number + 1, full=False)
        sizes += [len(p.rows) for p in snapshot.deltas if p.part == WORDS and p.rows is not None]
        Parts(by_rows).load(snapshot)
    count = len(by_rows.classifier.embedding.trainable)
    assert sizes
    assert max(sizes) < count
    Parts(anew).load(learner.publish(7))
    for models in (by_rows, anew):
        assert torch.equal(words_of(models), words_of(learner.models))
    written = learner.models.classifier.embedding.trainable
    assert not torch.equal(words_of(learner.models)[0, 1:], written[1:])  # reading does matter

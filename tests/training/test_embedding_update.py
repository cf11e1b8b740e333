"""Word vectors by row in a run: what is published, saved and resumed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from rss_rl.config import OptimizerConfig, RunConfig
from rss_rl.data.store import Prepared
from rss_rl.learners.phases import Turn
from rss_rl.rollouts.run_models import Models, build_prepared_models
from rss_rl.rollouts.snapshot import WORDS, Parts
from rss_rl.runs.checkpoint import load_checkpoint
from rss_rl.training.learner import LocalLearner
from rss_rl.training.run import train
from rss_rl.training.trainer import UpdateReport

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
        snapshot = learner.publish(number + 1, whole=False)
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


def finished(config: RunConfig, path: Path, *, stops: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Tensors of the end of a run that was stopped after so many updates of each attempt."""
    for count in stops:
        made: list[UpdateReport] = []
        for event in train(
            config,
            path,
            resume=path.exists(),
            stop=lambda: len(made) >= count,  # noqa: B023
        ):
            if isinstance(event, UpdateReport):
                made.append(event)
    list(train(config, path, resume=path.exists()))
    return dict(load_checkpoint(path, "latest").tensors)


@pytest.mark.parametrize("distillation", [0.0, 0.5])
def test_a_stopped_run_goes_on_to_the_bit(
    averaged: RunConfig, tmp_path: Path, distillation: float
) -> None:
    learner = averaged.learner.model_copy(update={"distillation": distillation})
    config = averaged.model_copy(update={"learner": learner})
    straight = finished(config, tmp_path / "straight", stops=())
    found = finished(config, tmp_path / "stopped", stops=(3, 6))
    assert found.keys() == straight.keys()
    for name, value in straight.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    assert "learning/average/since" in straight

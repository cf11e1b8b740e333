"""What is selected and scored is so in evaluation mode; dropout acts where something is learnt."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from trainers import trainer_of

from rss_rl.components import EVERYTHING, Component
from rss_rl.config import RunConfig, parse_config
from rss_rl.data.store import Prepared
from rss_rl.models.inputs import tensor_batch
from rss_rl.policies.distributions import IndependentBits
from rss_rl.policies.policy import PolicyInputs
from rss_rl.reading.models import Models, build_prepared_models
from rss_rl.rollouts.rollout import Job
from rss_rl.rollouts.sampler import Sampler
from rss_rl.rollouts.snapshot import Publisher
from rss_rl.training.evaluation import evaluate
from rss_rl.training.learner import LocalLearner
from rss_rl.training.selections import reached_share
from rss_rl.training.showcase import make_showcase

CPU = torch.device("cpu")


class Forgetful(nn.Module):
    """Forgets most of what it reads while it learns, and notes in which mode it was asked."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.score = nn.Linear(features, 2)
        self.dropout = nn.Dropout(0.9)
        self.modes: list[bool] = []

    def forward(self, inputs: PolicyInputs) -> IndependentBits:
        self.modes.append(self.training)
        scores = self.score(10 * self.dropout(inputs.features))
        return IndependentBits(scores.transpose(1, 2), inputs.valid)


FORGETFUL = Component(
    kind="policy",
    name="forgetful",
    help="Dropout on what it reads.",
    build=lambda setup, options: Forgetful(setup.features),
    capabilities=frozenset({"learns", "log_probs", "share"}),
)


@pytest.fixture
def config(tiny_config: RunConfig) -> RunConfig:
    tree = tiny_config.model_dump(mode="json") | {"policy": {"name": f"{__name__}:FORGETFUL"}}
    tree["model"]["dropout"] = 0.5
    tree["reward"]["target_share"] = 0.3
    tree["phases"] = tree["phases"][2:]
    return parse_config(tree, where="test", trust=EVERYTHING)


@pytest.fixture
def models(config: RunConfig, tiny: Prepared) -> Models:
    """As a learner has them: in training mode."""
    made = build_prepared_models(config, tiny)
    made.classifier.train()
    made.policy.train()
    return made


def modes_of(models: Models) -> list[bool]:
    policy: Any = models.policy
    return policy.modes  # type: ignore[no-any-return]


def test_a_split_is_scored_without_dropout(
    config: RunConfig, tiny: Prepared, models: Models
) -> None:
    dev = tiny.split("dev")
    first, second = (
        evaluate(models, dev, config, ["thresholded", "sampled"], device=CPU) for _ in range(2)
    )
    assert first == second
    assert not any(modes_of(models))
    assert models.policy.training
    assert models.classifier.training


def test_what_is_shown_and_steered_is_without_dropout(
    config: RunConfig, tiny: Prepared, models: Models
) -> None:
    first, second = (make_showcase(models, tiny.split("dev"), CPU) for _ in range(2))
    assert first == second
    batch = tiny.split("train").batch(np.arange(6))
    inputs = models.policy_inputs(tensor_batch(batch, CPU))
    reached, again = (reached_share(models, config, inputs, 0.3) for _ in range(2))
    assert reached == again
    assert not any(modes_of(models))


def test_rollouts_are_drawn_and_paid_without_dropout(
    config: RunConfig, tiny: Prepared, models: Models
) -> None:
    sampler = Sampler(config, models, tiny.split("train"))
    sampler.load(Publisher(models).publish(0))
    job = Job(0, 0, np.arange(6), 4, scored=True, thresholded=True)
    first, second = (sampler.sample(job) for _ in range(2))
    for one, other in zip(first.selections, second.selections, strict=True):
        assert np.array_equal(one, other)
    assert np.array_equal(first.log_prob, second.log_prob)
    assert np.array_equal(first.terms.total, second.terms.total)
    assert not any(modes_of(models))


def test_a_learner_learns_in_training_mode(config: RunConfig, tiny: Prepared) -> None:
    learner = LocalLearner(config, tiny)
    trainer = trainer_of(config, tiny, learner=learner)
    modes = modes_of(learner.models)
    modes.clear()
    trainer.update()
    assert True in modes  # what it learns from
    assert False in modes  # what the target share is reached by

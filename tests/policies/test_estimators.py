"""Estimators by name, those of others, and what is refused of them."""

from __future__ import annotations

from typing import Any

import pytest
import small
import torch
from torch import Tensor

from rss_rl.components import EVERYTHING, Component, component_names
from rss_rl.config import EstimatorConfig, LearnerConfig, RunConfig, parse_config
from rss_rl.errors import ConfigError
from rss_rl.learners.policy_gradient import PolicyGradientLearner, RewardBatch
from rss_rl.models.inputs import TensorBatch
from rss_rl.policies.estimators import (
    EstimatorSetup,
    GateEstimator,
    LogProbEstimator,
    build_estimator,
)

KINDS = {
    "pathwise": GateEstimator,
    "ppo-clip": LogProbEstimator,
    "reinforce": LogProbEstimator,
}


def test_built_in_ones_are_what_they_declare() -> None:
    assert set(KINDS) <= set(component_names("estimator"))
    for name, kind in KINDS.items():
        built = build_estimator(EstimatorConfig(name=name), 4)
        assert isinstance(built, kind), name
        assert sum(isinstance(built, other) for other in set(KINDS.values())) == 1, name


class Centred:
    """Rewards minus their mean over selections: an estimator of log-probs of one's own."""

    momentum = None
    thresholded = False
    correction = None
    limit = 0.0
    bitwise = False

    def __init__(self, setup: EstimatorSetup) -> None:
        self.selections = setup.selections

    def advantages(self, rewards: Tensor, thresholded: Tensor | None) -> Tensor:
        assert len(rewards) == self.selections
        return rewards - rewards.mean(0)


def component(build: Any, *capabilities: str) -> Component:
    return Component(
        kind="estimator",
        name="mine",
        help="An estimator of one's own.",
        build=build,
        capabilities=frozenset(capabilities),
    )


CENTRED = component(lambda setup, options: Centred(setup), "log_probs", "several")
NEITHER = component(lambda setup, options: Centred(setup), "gates", "log_probs")
OTHER = component(lambda setup, options: GateEstimator(), "log_probs")


def configured(name: str, **sampler: Any) -> RunConfig:
    tree = {
        "data": "some",
        "phases": [{"name": "a", "policy": True, "steps": 1}],
        "learner": {"estimator": f"{__name__}:{name}"},
        "sampler": sampler,
    }
    return parse_config(tree, where="test", trust=EVERYTHING)


def test_one_of_ones_own_makes_the_rewarded_selection_likely() -> None:
    estimator = build_estimator(configured("CENTRED").estimator, 4)
    assert not isinstance(estimator, GateEstimator)
    policy, classifier = small.policy(), small.classifier(sentences=1)
    config = LearnerConfig.model_validate({"policy": {"learning_rate": 0.05}})
    learner = PolicyGradientLearner(policy, classifier.embedding, config, None, estimator=estimator)
    tokens, valid = small.sentences(3, 3)
    batch = TensorBatch([tokens], [valid], torch.zeros(2, dtype=torch.int64))
    embedded = classifier.embedding(tokens).detach()
    before = policy(embedded, valid).probs.mean()
    generator = torch.Generator().manual_seed(0)
    for number in range(60):
        uniforms = torch.rand(4, 2, 2, 3, dtype=torch.float64, generator=generator)
        with torch.no_grad():
            drawn = policy(embedded, valid).sample(uniforms).selection
        rewards = drawn.double().sum((-1, -2))[..., None]
        learner.update(batch, RewardBatch([drawn], rewards, None), number=number)
    assert policy(embedded, valid).probs.mean() > before + 0.2


def test_what_it_declares_is_what_it_is() -> None:
    with pytest.raises(ConfigError, match=r"estimator .*:NEITHER'.* 2 of the capabilities"):
        build_estimator(configured("NEITHER").estimator, 4)
    with pytest.raises(ConfigError, match=r"is not a LogProbEstimator: it has no `advantages`"):
        build_estimator(configured("OTHER").estimator, 4)


def test_what_it_declares_is_asked_of_the_run() -> None:
    with pytest.raises(ConfigError, match="selections must be >= 2"):
        configured("CENTRED", selections=1)
    with pytest.raises(ConfigError, match="set sampler.max_policy_lag=0"):
        configured("CENTRED", max_policy_lag=1)

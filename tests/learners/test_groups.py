"""Two learners, two disjoint groups of parameters: neither touches what is the other's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import small
import torch
from torch import Tensor, nn

from rss_rl.config import LearnerConfig, OptimizerConfig
from rss_rl.learners.supervised import SupervisedLearner
from rss_rl.learners.updates import RewardBatch
from rss_rl.models.inputs import TensorBatch
from rss_rl.models.sentences import SentencesClassifier
from rss_rl.policies.policy import Policy

K, B = 3, 4
LABELS = torch.tensor([0, 1, 2, 1])


def models(**settings: Any) -> tuple[SentencesClassifier, Policy]:
    return small.classifier(double=False, **settings), small.policy(double=False)


def batch(seed: int = 0) -> tuple[TensorBatch, list[Tensor]]:
    """Four pairs and K selections of each, S x [K, B, 2, N]."""
    tokens, valid, _ = small.pairs((6, 2), (1, 7), (5, 5), (4, 3), seed=seed)
    drawn = [
        torch.stack([small.selection(v, 0.5, seed + 10 * k + s) for k in range(K)])
        for s, v in enumerate(valid)
    ]
    return TensorBatch(tokens, valid, LABELS), drawn


def paid(drawn: list[Tensor], seed: int = 0) -> RewardBatch:
    draw = np.random.default_rng(seed)
    rewards = torch.from_numpy(draw.normal(size=(K, B, 2))).float()
    return small.rewarded(drawn, rewards, torch.from_numpy(draw.normal(size=(B, 2))).float())


def copy_of(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict(keep_vars=False).items()}


def unchanged(module: nn.Module, before: dict[str, Tensor]) -> list[str]:
    return [name for name, value in module.state_dict().items() if torch.equal(value, before[name])]


@pytest.mark.parametrize("name", ["adam", "adadelta"])
def test_supervised_updates_touch_the_classifier_alone(name: str) -> None:
    classifier, policy = models()
    config = OptimizerConfig(name=name, learning_rate=0.1, l2=1e-2)  # type: ignore[arg-type]
    learner = SupervisedLearner(classifier, config, None)
    mine, others, fixed = copy_of(classifier), copy_of(policy), classifier.embedding.fixed.clone()
    tensors, drawn = batch()
    for number in range(2):
        selections = [s[number] for s in drawn]
        small.learn(learner, tensors, selections, number, small.keys(number, B))
    assert set(unchanged(classifier, mine)) <= {"encoder.pool.score.bias"}  # has no gradient
    assert set(unchanged(policy, others)) == set(others)
    assert torch.equal(classifier.embedding.fixed, fixed)
    assert all(p.grad is None for p in policy.parameters())


@pytest.mark.parametrize("baseline", ["none", "moving-average", "self-critical", "leave-one-out"])
@pytest.mark.parametrize("name", ["adam", "adadelta"])
def test_policy_updates_touch_the_policy_alone(baseline: str, name: str) -> None:
    classifier, policy = models()
    config = LearnerConfig(
        policy=OptimizerConfig(name=name, learning_rate=0.1, l2=1e-2),  # type: ignore[arg-type]
        entropy_cost=0.1,
    )
    learner = small.policy_update(policy, classifier.embedding, config, baseline=baseline)
    mine, others, fixed = copy_of(policy), copy_of(classifier), classifier.embedding.fixed.clone()
    tensors, drawn = batch()
    for number in range(2):
        small.step(learner, tensors, paid(drawn, number), number)
    assert unchanged(policy, mine) == []
    assert set(unchanged(classifier, others)) == set(others)
    assert torch.equal(classifier.embedding.fixed, fixed)
    # The policy reads the embeddings through a stop-gradient.
    assert all(p.grad is None for p in classifier.parameters())


def test_the_supervised_loss_uses_the_given_selection() -> None:
    tensors, drawn = batch()
    classifier, _ = models()
    wanted = {
        kind: classifier.losses(
            classifier(tensors.tokens, tensors.valid, selections), LABELS
        ).mean().item()
        for kind, selections in (("all", None), ("sampled", [s[0] for s in drawn]))
    }  # fmt: skip
    for kind, selections in (("all", None), ("sampled", [s[0] for s in drawn])):
        learner = SupervisedLearner(models()[0], OptimizerConfig(l2=1.0), None)
        stats = small.learn(learner, tensors, selections, 0, small.keys(0, B))
        assert stats["train/loss"] == pytest.approx(wanted[kind], rel=1e-5)  # L2 is not in it
        assert stats["train/gradient_norm"] > 0
        predicted = models()[0]
        chosen = predicted.predict(predicted(tensors.tokens, tensors.valid, selections))
        assert stats["train/accuracy"] == float((chosen == LABELS).float().mean())
    assert wanted["all"] != pytest.approx(wanted["sampled"], rel=1e-3)


def test_word_vectors_and_biases_have_no_l2() -> None:
    results = []
    for l2 in (0.0, 0.5):
        classifier, _ = models(encoder="mean")
        tensors, _ = batch()
        learner = SupervisedLearner(classifier, OptimizerConfig(l2=l2), None)
        small.learn(learner, tensors, None, 0, small.keys(0, B))
        results.append(copy_of(classifier))
    for name, value in results[0].items():
        weight = value.ndim == 2 and not name.startswith("embedding.")
        assert torch.equal(results[1][name], value) is not weight, name


def test_lower_precision_keeps_parameters_in_single_precision() -> None:
    classifier, policy = models()
    tensors, drawn = batch()
    supervised = SupervisedLearner(classifier, OptimizerConfig(), torch.bfloat16)
    gradient = small.policy_update(policy, classifier.embedding, autocast=torch.bfloat16)
    read, keys = [s[0] for s in drawn], small.keys(0, B)
    stats = small.learn(supervised, tensors, read, 0, keys)
    precise = SupervisedLearner(models()[0], OptimizerConfig(), None)
    exact = small.learn(precise, tensors, read, 0, keys)
    assert stats["train/loss"] == pytest.approx(exact["train/loss"], rel=0.05)
    assert stats["train/loss"] != exact["train/loss"]
    small.step(gradient, tensors, paid(drawn))
    for module in (classifier, policy):
        assert {p.dtype for p in module.parameters()} == {torch.float32}

"""Distillation: reading a selection, the classifier also fits what it predicted from all tokens."""

from __future__ import annotations

import small
import torch
from torch import Tensor

from rss_rl.config import OptimizerConfig
from rss_rl.learners.supervised import SupervisedLearner
from rss_rl.learners.updates import read
from rss_rl.models.inputs import TensorBatch
from rss_rl.models.sentences import SentencesClassifier

_TOKENS, _VALID, _SELECTIONS = small.pairs((5, 3), (4, 6), (2, 2))


def _batch(classes: tuple[int, ...] = (0, 1, 2)) -> TensorBatch:
    return TensorBatch(_TOKENS, _VALID, torch.tensor(classes))


def _learner(
    weight: float, average: float | None = None
) -> tuple[SupervisedLearner, SentencesClassifier]:
    classifier = small.classifier(double=False)
    config = OptimizerConfig(learning_rate=0.05)
    return SupervisedLearner(classifier, config, None, average, distillation=weight), classifier


def _update(learner: SupervisedLearner, number: int, *, selected: bool = True) -> float:
    selections = _SELECTIONS if selected else None
    keys = small.keys(number, 3)
    return small.learn(learner, _batch(), selections, number, keys)["train/loss"]


def _probabilities(classifier: SentencesClassifier) -> Tensor:
    with torch.no_grad():
        return torch.softmax(classifier.eval()(_TOKENS, _VALID, None), -1)


def test_the_gradient_is_that_of_the_weighted_targets() -> None:
    weight = 0.3
    learner, classifier = _learner(weight)
    teacher = _probabilities(classifier)
    twin = small.classifier(double=False)
    log_probs = torch.log_softmax(twin(_TOKENS, _VALID, _SELECTIONS), -1)
    labelled = -log_probs[torch.arange(3), torch.arange(3)]
    distilled = -(teacher * log_probs).sum(-1)
    ((1 - weight) * labelled + weight * distilled).mean().backward()
    keys = small.keys(0, 3)
    stats = read([learner.gradients(_batch(), _SELECTIONS, number=0, dropout_keys=keys)])
    assert abs(stats["train/loss"] - float(labelled.detach().mean())) < 1e-5  # the label's alone
    for mine, theirs in zip(classifier.parameters(), twin.parameters(), strict=True):
        if theirs.grad is not None and mine.grad is not None:
            torch.testing.assert_close(mine.grad.to_dense(), theirs.grad, rtol=1e-4, atol=1e-6)


def test_an_example_of_weight_two_counts_as_if_it_came_twice() -> None:
    again = [0, 0, 1, 2]
    tokens, valid, selections = (
        [part[again] for part in each] for each in (_TOKENS, _VALID, _SELECTIONS)
    )
    batches = (
        (_batch()._replace(weights=torch.tensor([1.5, 0.75, 0.75])), _SELECTIONS),
        (TensorBatch(tokens, valid, torch.tensor([0, 0, 1, 2])), selections),
    )
    found = []
    for batch, chosen in batches:
        learner, classifier = _learner(0.3)
        keys = small.keys(0, len(batch.labels))
        stats = read([learner.gradients(batch, chosen, number=0, dropout_keys=keys)])
        gradients = [p.grad.to_dense() for p in classifier.parameters() if p.grad is not None]
        found.append((gradients, stats["train/loss"]))
    torch.testing.assert_close(found[0], found[1])


def test_the_teacher_is_the_classifier_before_it_read_a_selection() -> None:
    learner, classifier = _learner(0.5, average=0.5)
    for number in range(3):
        _update(learner, number, selected=False)
    assert not any(name.startswith("teacher/") for name in learner.state_dict())
    expected = {name: value.clone() for name, value in classifier.state_dict().items()}
    for number in range(3, 6):
        _update(learner, number)
    found = learner.state_dict()
    for name, value in expected.items():  # the average's weights, and they stay
        assert torch.equal(found[f"teacher/{name}"], value)
        if name.endswith("weight"):
            assert not torch.equal(classifier.state_dict()[name], value)


def test_a_resumed_learner_has_the_same_teacher() -> None:
    straight, one = _learner(0.5, average=0.9)
    for number in range(4):
        _update(straight, number)
    first, other = _learner(0.5, average=0.9)
    for number in range(2):
        _update(first, number)
    saved = {name: value.clone() for name, value in first.state_dict().items()}
    weights = {name: value.clone() for name, value in other.state_dict().items()}
    second, two = _learner(0.5, average=0.9)
    small.randomise(two, seed=9)
    two.load_state_dict(weights)
    second.load_state_dict(saved)
    second.step.optimizer.load_state_dict(first.step.optimizer.state_dict())
    for number in (2, 3):
        _update(second, number)
    for mine, theirs in zip(two.parameters(), one.parameters(), strict=True):
        assert torch.equal(mine, theirs)

"""The running average of the classifier's weights, which is then the classifier."""

from __future__ import annotations

import small
import torch
from torch import Tensor

from rss_rl.config import OptimizerConfig
from rss_rl.learners.supervised import SupervisedLearner
from rss_rl.models.inputs import TensorBatch


def _batch() -> TensorBatch:
    tokens, valid, _ = small.pairs((5, 3), (4, 6), (2, 2))
    return TensorBatch(tokens, valid, torch.tensor([0, 1, 2]))


def _train(updates: int, average: float | None) -> list[list[Tensor]]:
    """The classifier's weights before the first and after each update."""
    classifier = small.classifier(double=False)
    learner = SupervisedLearner(classifier, OptimizerConfig(learning_rate=0.05), None, average)
    history = [[v.clone() for v in classifier.state_dict().values()]]
    for number in range(updates):
        small.learn(learner, _batch(), None, number, small.keys(number, 3))
        history.append([v.clone() for v in classifier.state_dict().values()])
    return history


def test_the_classifier_is_the_running_average_of_the_learning_copy() -> None:
    learnt = _train(6, None)  # the trajectory of the copy: averaging does not feed back
    averaged = _train(6, 0.5)
    expected = [p.clone() for p in learnt[0]]
    for number in range(6):
        keep = min(0.5, (1 + number) / (10 + number))
        expected = [
            keep * mean + (1 - keep) * new
            for mean, new in zip(expected, learnt[number + 1], strict=True)
        ]
        for mine, theirs in zip(averaged[number + 1], expected, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
    assert any(not torch.equal(a, b) for a, b in zip(averaged[-1], learnt[-1], strict=True))

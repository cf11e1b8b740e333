"""The average of word vectors, kept row by row, is that of all of them, wherever it is read."""

from __future__ import annotations

import numpy as np
import pytest
import small
import torch
from torch import Tensor

from rss_rl.config import OptimizerConfig
from rss_rl.learners.supervised import SupervisedLearner
from rss_rl.models.embedding import RowAverage
from rss_rl.models.inputs import TensorBatch
from rss_rl.models.sentences import SentencesClassifier

UPDATES = 14


def batch_of(update: int) -> TensorBatch:
    """Of words that only some updates have."""
    draw = np.random.default_rng(update)
    tokens = [torch.from_numpy(draw.choice(draw.integers(1, small.WORDS, 4), (3, 4)))] * 2
    valid = [torch.ones(3, 4, dtype=torch.bool)] * 2
    return TensorBatch(tokens, valid, torch.tensor([0, 1, 2]))


def learner_of(
    average: float | None, *, name: str = "sgd"
) -> tuple[SupervisedLearner, SentencesClassifier]:
    classifier = small.classifier(double=False)
    rate = 3.0 if name == "adadelta" else 0.05
    config = OptimizerConfig(name=name, learning_rate=rate)  # type: ignore[arg-type]
    return SupervisedLearner(classifier, config, None, average), classifier


def train(learner: SupervisedLearner, first: int, last: int) -> None:
    for number in range(first, last):
        keys = small.keys(number, 3)
        small.learn(learner, batch_of(number), None, number, keys)


@pytest.mark.parametrize("name", ["adam", "sgd", "adadelta"])
@pytest.mark.parametrize("average", [0.3, 0.9, 0.999])
def test_it_is_the_average_of_all_rows(average: float, name: str) -> None:
    """Of weights that learn as if there were no average."""
    learner, classifier = learner_of(average, name=name)
    plain, other = learner_of(None, name=name)
    expected = {key: value.clone() for key, value in classifier.state_dict().items()}
    for number in (*range(7), *range(9, UPDATES)):  # a phase without the classifier between
        train(learner, number, number + 1)
        keep = min(average, (1 + number) / (10 + number))
        train(plain, number, number + 1)
        leading = other.state_dict()
        expected = {k: keep * v + (1 - keep) * leading[k] for k, v in expected.items()}
        for key, value in classifier.state_dict().items():
            torch.testing.assert_close(value, expected[key], rtol=1e-5, atol=1e-6, msg=key)
    words = torch.arange(1, small.TRAINABLE)
    wanted = expected["embedding.trainable"][1:]
    torch.testing.assert_close(classifier.embedding(words), wanted, rtol=1e-5, atol=1e-6)
    # Rows as they were written are behind: so that bringing them up to date does matter.
    assert not torch.allclose(classifier.embedding.trainable[1:], wanted, atol=1e-4)


def test_what_is_read_is_what_is_saved_to_the_bit() -> None:
    learner, classifier = learner_of(0.9)
    train(learner, 0, UPDATES)
    saved = classifier.state_dict()["embedding.trainable"]
    words = torch.arange(1, small.TRAINABLE)
    assert torch.equal(classifier.embedding(words), saved[1:])


def test_it_goes_on_to_the_bit_from_what_was_saved() -> None:
    straight, whole = learner_of(0.9, name="adam")
    train(straight, 0, UPDATES)
    first, half = learner_of(0.9, name="adam")
    train(first, 0, 6)
    saved = {name: value.clone() for name, value in first.state_dict().items()}
    weights = {name: value.clone() for name, value in half.state_dict().items()}
    state = first.step.optimizer.state_dict()
    second, other = learner_of(0.9, name="adam")
    small.randomise(other, seed=9)
    other.load_state_dict(weights)
    second.load_state_dict(saved)
    second.step.optimizer.load_state_dict(state)
    train(second, 6, UPDATES)
    expected, found = (learner.state_dict() for learner in (straight, second))
    assert expected.keys() == found.keys()
    assert all(torch.equal(found[key], value) for key, value in expected.items())
    saved_whole = whole.state_dict()
    assert all(torch.equal(v, saved_whole[k]) for k, v in other.state_dict().items())


def test_the_leader_is_followed_from_where_it_stands() -> None:
    """By hand: two updates in which a row stands still come to their product."""
    leader, table = torch.tensor([[4.0], [8.0]]), torch.tensor([[0.0], [0.0]])
    average = RowAverage(leader)
    for row, keep in ((0, 0.5), (1, 0.25), (1, 0.5)):
        rows = torch.tensor([row])
        average.follow(table, rows, keep)
        leader[row] += 1.0
    by_hand: list[Tensor] = [torch.tensor(0.0), torch.tensor(0.0)]
    leaders = [4.0, 8.0]
    for row, keep in ((0, 0.5), (1, 0.25), (1, 0.5)):
        leaders[row] += 1.0
        by_hand = [keep * own + (1 - keep) * led for own, led in zip(by_hand, leaders, strict=True)]
    torch.testing.assert_close(average.read_all(table)[:, 0], torch.stack(by_hand))

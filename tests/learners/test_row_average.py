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
    average: float, *, by_row: bool, name: str = "sgd"
) -> tuple[SupervisedLearner, SentencesClassifier]:
    classifier = small.classifier(double=False)
    rate = 3.0 if name == "adadelta" else 0.05
    config = OptimizerConfig(name=name, learning_rate=rate)  # type: ignore[arg-type]
    return SupervisedLearner(classifier, config, None, average, by_row=by_row), classifier


def train(learner: SupervisedLearner, first: int, last: int, skipped: tuple[int, ...] = ()) -> None:
    """As phases in which the classifier does not learn leave updates out."""
    for number in range(first, last):
        if number not in skipped:
            keys = small.keys(number, 3)
            learner.update(batch_of(number), None, number=number, dropout_keys=keys)


@pytest.mark.parametrize("name", ["sgd", "adadelta"])
@pytest.mark.parametrize("average", [0.3, 0.9, 0.999])
def test_it_is_the_average_of_all_rows(average: float, name: str) -> None:
    found, expected = (learner_of(average, by_row=b, name=name) for b in (True, False))
    for last in (1, 5, UPDATES):
        for learner, _ in (found, expected):
            train(learner, {1: 0, 5: 1, UPDATES: 5}[last], last, skipped=(7, 8))
        saved = [classifier.state_dict() for _, classifier in (found, expected)]
        for key, value in saved[1].items():
            torch.testing.assert_close(saved[0][key], value, rtol=1e-5, atol=1e-6, msg=key)
    words = torch.arange(small.WORDS)[None]
    read = [classifier.embedding(words) for _, classifier in (found, expected)]
    torch.testing.assert_close(*read, rtol=1e-5, atol=1e-6)
    # Rows as they were written are behind: so that bringing them up to date does matter.
    classifier = found[1]
    assert not torch.allclose(
        classifier.embedding.trainable, classifier.state_dict()["embedding.trainable"], atol=1e-4
    )


def test_what_is_read_is_what_is_saved_to_the_bit() -> None:
    learner, classifier = learner_of(0.9, by_row=True)
    train(learner, 0, UPDATES)
    saved = classifier.state_dict()["embedding.trainable"]
    words = torch.arange(1, small.TRAINABLE)
    assert torch.equal(classifier.embedding(words), saved[1:])


def test_it_goes_on_to_the_bit_from_what_was_saved() -> None:
    straight, whole = learner_of(0.9, by_row=True, name="adam")
    train(straight, 0, UPDATES)
    first, half = learner_of(0.9, by_row=True, name="adam")
    train(first, 0, 6)
    saved = {name: value.clone() for name, value in first.tensors().items()}
    weights = {name: value.clone() for name, value in half.state_dict().items()}
    state = first.step.optimizer.state_dict()
    second, other = learner_of(0.9, by_row=True, name="adam")
    small.randomise(other, seed=9)
    other.load_state_dict(weights)
    second.load_tensors(saved)
    second.step.optimizer.load_state_dict(state)
    train(second, 6, UPDATES)
    expected, found = (learner.tensors() for learner in (straight, second))
    assert expected.keys() == found.keys()
    assert all(torch.equal(found[key], value) for key, value in expected.items())
    saved_whole = whole.state_dict()
    assert all(torch.equal(v, saved_whole[k]) for k, v in other.state_dict().items())


@pytest.mark.parametrize("lost", ["average/clock", "average/since", "average/written"])
def test_a_state_without_a_part_is_refused(lost: str) -> None:
    learner, _ = learner_of(0.9, by_row=True)
    saved = learner.tensors()
    for wrong in (
        {name: value for name, value in saved.items() if name != lost},
        saved | {lost: saved[lost][None]},
    ):
        with pytest.raises(RuntimeError, match="do not fit"):
            learner.load_tensors(wrong)
    dense, _ = learner_of(0.9, by_row=False)
    with pytest.raises(RuntimeError, match="by row"):
        dense.load_tensors(saved)


def test_the_leader_is_followed_from_where_it_stands() -> None:
    """By hand: two updates in which a row stands still come to their product."""
    leader, table = torch.tensor([[4.0], [8.0]]), torch.tensor([[0.0], [0.0]])
    average = RowAverage(leader)
    for row, keep in ((0, 0.5), (1, 0.25), (1, 0.5)):
        rows = torch.tensor([row])
        average.settle(table, rows)
        leader[row] += 1.0
        average.follow(table, rows, keep)
    by_hand: list[Tensor] = [torch.tensor(0.0), torch.tensor(0.0)]
    leaders = [4.0, 8.0]
    for row, keep in ((0, 0.5), (1, 0.25), (1, 0.5)):
        leaders[row] += 1.0
        by_hand = [keep * own + (1 - keep) * led for own, led in zip(by_hand, leaders, strict=True)]
    torch.testing.assert_close(average.read_all(table)[:, 0], torch.stack(by_hand))


def test_an_average_of_all_rows_goes_on_by_row() -> None:
    dense, whole = learner_of(0.9, by_row=False)
    train(dense, 0, 4)
    learner, classifier = learner_of(0.9, by_row=True)
    train(learner, 0, 6)
    classifier.load_state_dict(whole.state_dict())
    learner.load_tensors(dense.tensors())
    words = torch.arange(small.WORDS)
    assert torch.equal(classifier.embedding(words), whole.embedding(words))

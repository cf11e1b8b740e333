"""Explanations of a classifier whose log-odds are a sum over its words."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rss_rl.errors import ConfigError
from rss_rl.models.embedding import WordEmbedding
from rss_rl.models.heads import ClassTask
from rss_rl.models.inputs import tensor_batch
from rss_rl.models.sentences import SentencesClassifier
from rss_rl.results.posthoc import FOR_LABEL, METHODS, PosthocScores, posthoc_scores
from rss_rl.rollouts.snapshot import Models
from rss_rl.types import Array, Batch

VECTORS = np.array([[0, 0], [1, 0], [-2, 0.5], [0.5, 0.5], [0, 3]], dtype=np.float32)
EXACT = [name for name in METHODS if name not in ("occlusion-5", "lime")]


class Sum(nn.Module):
    """The sum of the selected vectors."""

    reads_unselected = False
    output_size = 2

    def forward(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
        kept = valid & selection.any(1)
        return (embedded * kept[..., None]).sum(1)


class Weighing(nn.Module):
    """Class 1 has the logit a . x + 2 b . y of the sentences' sums x and y, others 0."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes

    def forward(self, sentences: Sequence[Tensor]) -> Tensor:
        weights = torch.tensor([[2.0, 1.0], [2.0, -2.0]])
        value = sum(
            (place + 1) * (vectors @ weights[place]) for place, vectors in enumerate(sentences)
        )
        logits = torch.zeros(len(sentences[0]), self.classes)
        return torch.cat([logits[:, :1], cast(Tensor, value)[:, None], logits[:, 2:]], 1)


def classifier(classes: int = 2) -> SentencesClassifier:
    embedding = WordEmbedding(VECTORS, len(VECTORS))
    return SentencesClassifier(embedding, Sum(), Weighing(classes), ClassTask()).eval()


def pairs() -> Batch:
    """Of class 1 and of class 0; sentences of 3 and 2 words, and of 1 and 3."""
    tokens = np.array([[1, 2, 4], [3, 0, 0]]), np.array([[3, 1, 0], [4, 4, 2]])
    lengths = np.array([[3], [1]]), np.array([[2], [3]])
    valid = tuple(np.arange(3) < length for length in lengths)
    return Batch(np.array([5, 2]), tokens, valid, np.array([1, 0]))


def scores(method: str, batch: Batch, classes: int = 2, seed: int = 0) -> list[Array]:
    found = PosthocScores(method, classifier(classes), seed)(
        batch, tensor_batch(batch, torch.device("cpu"))
    )
    return [part.round(4) for part in found]


@pytest.mark.parametrize("method", EXACT)
def test_of_a_sum_each_word_counts_for_what_it_adds(method: str) -> None:
    first, second = scores(method, pairs())
    # a . x of the vectors, and 2 b . y; class 0 has the log-odds with the other sign.
    assert first[0].tolist() == pytest.approx([2, -3.5, 3])
    assert second[0, :2].tolist() == pytest.approx([0, 4])
    assert first[1, :1].tolist() == pytest.approx([-1.5])
    assert second[1].tolist() == pytest.approx([12, 12, 10])


def test_windows_run_over_the_end_of_a_sentence() -> None:
    first, second = scores("occlusion-5", pairs())
    assert first[0].tolist() + second[0, :2].tolist() == pytest.approx([5.5] * 5)


def test_log_odds_are_against_all_other_classes() -> None:
    batch = Batch(np.array([0]), (np.array([[1, 1]]),), (np.ones((1, 2), bool),), np.array([1]))
    # log-odds of a logit v of class 1 against two logits of 0: v - log 2; of class 2: -log(e^v + 1)
    assert scores("occlusion", batch, classes=3)[0][0].tolist() == pytest.approx([2, 2])
    other = Batch(batch.rows, batch.tokens, batch.valid, np.array([2]))
    lost = np.log(np.exp(2) + 1) - np.log(np.exp(4) + 1)
    assert scores("occlusion", other, classes=3)[0][0] == pytest.approx([lost] * 2, abs=1e-4)


def test_lime_comes_near_and_depends_on_seed_and_row_alone() -> None:
    batch = pairs()
    first, second = scores("lime", batch)
    assert first[0].tolist() == pytest.approx([2, -3.5, 3], abs=0.2)
    assert second[1].tolist() == pytest.approx([12, 12, 10], abs=0.4)
    alone = Batch(
        batch.rows[1:],
        (batch.tokens[0][1:, :1], batch.tokens[1][1:]),
        (batch.valid[0][1:, :1], batch.valid[1][1:]),
        batch.labels[1:],
    )
    assert scores("lime", alone)[1].tolist() == second[1:].tolist()
    moved = Batch(np.array([3]), alone.tokens, alone.valid, alone.labels)
    assert scores("lime", moved)[1].tolist() != second[1:].tolist()
    assert scores("lime", alone, seed=1)[1].tolist() != second[1:].tolist()


def test_methods_leave_no_gradient_behind() -> None:
    module = classifier()
    batch = pairs()
    with torch.no_grad():
        for method in METHODS:
            PosthocScores(method, module, 0)(batch, tensor_batch(batch, torch.device("cpu")))
    assert all(parameter.grad is None for parameter in module.parameters())


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'lime'") as caught:
        PosthocScores("lyme", classifier(), 0)
    assert "integrated-gradients" in str(caught.value)


def test_the_policy_for_the_right_class() -> None:
    """Its logits beside smoothed gradients, each with mean 0 and deviation 1 over a sentence."""
    chances = [torch.tensor([[[0.9, 0.2, 0.6]] * 2, [[0.4, 0.7, 0.8]] * 2]), torch.rand(2, 2, 3)]
    chances[1][0, 1] = 0.0  # kept as heads alone
    chances[1][1] = 0.3  # all alike
    batch = pairs()
    policy = SimpleNamespace(probabilities=lambda vectors, valid: vectors)
    models = cast(
        Models,
        SimpleNamespace(
            classifier=classifier(), policy=policy, policy_inputs=lambda *given: chances
        ),
    )
    tensors = tensor_batch(batch, torch.device("cpu"))
    found = posthoc_scores(FOR_LABEL, models, 0)(batch, tensors)
    slopes = PosthocScores("gradient-x-input", classifier(), 0)(batch, tensors)

    def standard(values: Array) -> Array:
        spread = values.std()
        return (values - values.mean()) / spread if spread > 1e-12 else np.zeros(len(values))

    for slot, valid in enumerate(batch.valid):
        for row, real in enumerate(valid):
            p = chances[slot][row].amax(0).double().numpy()[real].clip(1e-6, 1 - 1e-6)
            slope, places = slopes[slot][row][real], np.arange(real.sum())
            near = np.exp(-((places[:, None] - places) ** 2) / (2 * 2.0**2))
            wanted = standard(np.log(p / (1 - p))) + standard(near @ slope) / 4
            np.testing.assert_allclose(found[slot][row][real], wanted, atol=1e-6)
    assert posthoc_scores(FOR_LABEL, models, 0).knows_labels

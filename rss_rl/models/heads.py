"""Task heads: sentence vectors to logits, and what a logit means for a task.

Legend: M examples, C classes or score bins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rss_rl.models.layers import Dense, Highway, glorot_linear
from rss_rl.ops.attention import KernelBackend
from rss_rl.ops.losses import expected_score, score_divergence

OfSentences = Callable[[Sequence[Tensor]], Tensor]
"""Maps sentence vectors, S x [M, D], to features of them, or as a head to logits [M, C]."""


def entailment_features(sentences: Sequence[Tensor]) -> Tensor:
    """[p; h; p - h; p * h] of a premise and a hypothesis, [M, 4D]."""
    premise, hypothesis = sentences
    return torch.cat([premise, hypothesis, premise - hypothesis, premise * hypothesis], -1)


def relatedness_features(sentences: Sequence[Tensor]) -> Tensor:
    """[a * b; |a - b|] of two sentences, symmetric in them, [M, 2D]."""
    first, second = sentences
    return torch.cat([first * second, (first - second).abs()], -1)


class SentencesHead(nn.Module):
    """features -> Dense -> optional highway -> linear.

    Args:
        features: combination of the sentence vectors, or None for one sentence.
        inputs: size of what `features` returns.
    """

    def __init__(
        self,
        features: OfSentences | None,
        inputs: int,
        hidden: int,
        outputs: int,
        *,
        activation: str,
        dropout: float,
        highway: bool,
        backend: KernelBackend = "eager",
    ) -> None:
        super().__init__()
        self._features = features or itemgetter(0)
        self.dense = Dense(inputs, hidden, activation, dropout, backend)
        self.highway = Highway(hidden, activation, dropout, backend) if highway else nn.Identity()
        self.output = glorot_linear(hidden, outputs, backend=backend)

    def forward(self, sentences: Sequence[Tensor]) -> Tensor:
        """See `OfSentences`."""
        return self.output(self.highway(self.dense(self._features(sentences))))  # type: ignore[no-any-return]


class ClassTask:
    """Softmax over classes with the cross-entropy."""

    def losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """-log p(label), [M]."""
        return F.cross_entropy(logits, labels, reduction="none")

    def predict(self, logits: Tensor) -> Tensor:
        """Most likely class, int64 [M]."""
        return logits.argmax(-1)


class ScoreTask:
    """A real score in [low, high] as the mean over evenly spaced bins."""

    def __init__(self, low: float, high: float) -> None:
        self._low, self._high = low, high

    def losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """KL divergence of each example to the two bins next to its score, [M]."""
        return score_divergence(logits, labels.to(logits.dtype), self._low, self._high)

    def predict(self, logits: Tensor) -> Tensor:
        """Expected score, [M]."""
        return expected_score(logits, self._low, self._high)

"""The supervised learner: updates the classifier (reward model) and nothing else.

Legend: B examples, S sentences an example, N_s tokens of slot s.
"""

from __future__ import annotations

__all__ = ["SupervisedLearner", "SupervisedStats"]

import copy
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from learners.optim import GradientStep
from rss_rl.config import OptimizerConfig
from rss_rl.models.classifier import Classifier
from rss_rl.models.inputs import TensorBatch


class SupervisedStats(NamedTuple):
    """Of one update: mean loss without L2 (nats), gradient norm, predictions [B]."""

    loss: float
    gradient_norm: float
    predictions: Tensor


class SupervisedLearner:
    """Minimises mean(-log p(y* | x*, selection)) + gamma |theta_s|^2 over the classifier.

    With `average`, a copy of the classifier learns, and the classifier itself is the running
    average of the copy's weights, theta <- m theta + (1 - m) theta_copy (Polyak and Juditsky 1992):
    a reward model that moves smoothly, and a better one where data are few.

    Args:
        autocast: dtype of matrix products, or None for float32.
        average: m in (0, 1), or None for a classifier that learns itself. In update t of the run at
            most (1 + t) / (10 + t), so that the first weights are soon forgotten.
    """

    def __init__(
        self,
        classifier: Classifier,
        config: OptimizerConfig,
        autocast: torch.dtype | None,
        average: float | None = None,
    ) -> None:
        self._classifier = classifier
        self._learning = classifier if average is None else copy.deepcopy(classifier)
        self._average = average
        self._autocast = autocast
        self.step = GradientStep("supervised", self._learning, config, embedding=("embedding.",))

    def tensors(self) -> dict[str, Tensor]:
        """The weights of the learning copy by name; empty where the classifier learns itself."""
        return {} if self._average is None else dict(self._learning.state_dict())

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore `tensors`.

        Raises:
            RuntimeError: names or shapes that do not fit.
        """
        if self._average is not None:
            self._learning.load_state_dict(dict(tensors))

    def update(
        self,
        batch: TensorBatch,
        selections: Sequence[Tensor] | None,
        *,
        number: int,
        dropout_seed: int,
    ) -> SupervisedStats:
        """One optimiser step.

        Args:
            selections: S x bool [B, 2, N_s], or None for every token.
            number: of the update in the run, from 0, for the learning rate's decay.
            dropout_seed: dropout masks are a function of it, so a resumed run repeats them.

        Raises:
            NonFiniteError: on a non-finite loss or gradient; no parameter has changed then.
        """
        torch.manual_seed(dropout_seed)
        self._learning.train()
        device = batch.labels.device.type
        with torch.autocast(device, dtype=self._autocast, enabled=self._autocast is not None):
            logits = self._learning(batch.tokens, batch.valid, selections)
        loss = self._learning.losses(logits, batch.labels).mean()
        norm = self.step(loss, number)
        self._follow(number)
        return SupervisedStats(
            float(loss.detach()), norm, self._classifier.predict(logits.detach())
        )

    @torch.no_grad()
    def _follow(self, number: int) -> None:
        """Move the classifier towards the learning copy."""
        if self._average is not None:
            keep = min(self._average, (1 + number) / (10 + number))
            pairs = zip(self._classifier.parameters(), self._learning.parameters(), strict=True)
            for follower, leader in pairs:
                follower.lerp_(leader, 1 - keep)

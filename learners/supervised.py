"""The supervised learner: updates the classifier (reward model) and nothing else.

Legend: B examples, S sentences an example, N_s tokens of slot s.
"""

from __future__ import annotations

__all__ = ["SupervisedLearner", "SupervisedStats"]

from collections.abc import Sequence
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

    Args:
        autocast: dtype of matrix products, or None for float32.
    """

    def __init__(
        self, classifier: Classifier, config: OptimizerConfig, autocast: torch.dtype | None
    ) -> None:
        self._classifier = classifier
        self._autocast = autocast
        self.step = GradientStep("supervised", classifier, config, embedding=("embedding.",))

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
        self._classifier.train()
        device = batch.labels.device.type
        with torch.autocast(device, dtype=self._autocast, enabled=self._autocast is not None):
            logits = self._classifier(batch.tokens, batch.valid, selections)
        loss = self._classifier.losses(logits, batch.labels).mean()
        norm = self.step(loss, number)
        return SupervisedStats(
            float(loss.detach()), norm, self._classifier.predict(logits.detach())
        )

"""The supervised learner: updates the classifier (reward model) and nothing else.

Legend: B examples of this learner's shard, S sentences an example, N_s tokens of slot s.
"""

from __future__ import annotations

__all__ = ["SupervisedLearner", "SupervisedStats"]

import copy
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rss_rl.config import OptimizerConfig
from rss_rl.learners.group import ALONE, Group
from rss_rl.learners.optim import GradientStep
from rss_rl.models.dropout import keyed_dropout
from rss_rl.models.inputs import TensorBatch
from rss_rl.models.protocol import Classifier
from rss_rl.ops.attention import Backend


class SupervisedStats(NamedTuple):
    """Of one update, over the global batch.

    loss           mean, without L2, in nats (or score²)
    gradient_norm  before clipping
    accuracy       share of examples predicted right, with dropout; None where labels are scores
    """

    loss: float
    gradient_norm: float
    accuracy: float | None


class _Losses(nn.Module):
    """Loss summed over the examples of a shard, and how many of them were predicted right."""

    def __init__(self, classifier: Classifier, autocast: torch.dtype | None) -> None:
        super().__init__()
        self.classifier = classifier
        self._autocast = autocast

    def forward(
        self, batch: TensorBatch, selections: Sequence[Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        device = batch.labels.device.type
        with torch.autocast(device, dtype=self._autocast, enabled=self._autocast is not None):
            logits = self.classifier(batch.tokens, batch.valid, selections, batch.marks)
        hits = self.classifier.predict(logits.detach()) == batch.labels
        return self.classifier.losses(logits, batch.labels).sum(), hits.sum()


class SupervisedLearner:
    """Minimises mean(-log p(y* | x*, selection)) + gamma |theta_s|^2 over the classifier.

    With `average`, a copy of the classifier learns, and the classifier itself is the running
    average of the copy's weights, theta <- m theta + (1 - m) theta_copy (Polyak and Juditsky 1992):
    a reward model that moves smoothly, and a better one where data are few.

    Args:
        autocast: dtype of matrix products, or None for float32.
        average: m in (0, 1), or None for a classifier that learns itself. In update t of the run at
            most (1 + t) / (10 + t), so that the first weights are soon forgotten.
        group: learners that share each batch; after an error in one of them it is of no use.
        backend: of the optimiser, see `Adadelta`.

    `moved_words` has the word vectors that the last update moved, int64 [R]; None = any of them.
    """

    def __init__(
        self,
        classifier: Classifier,
        config: OptimizerConfig,
        autocast: torch.dtype | None,
        average: float | None = None,
        group: Group = ALONE,
        backend: Backend = "eager",
    ) -> None:
        self._classifier = classifier
        self._learning = classifier if average is None else copy.deepcopy(classifier)
        self._average = average
        self._group = group
        embedding = self._learning.embedding
        # Learners in a group sum dense gradients, and an accelerator has the bandwidth for them.
        embedding.gradient_by_row = group.size == 1 and embedding.trainable.device.type == "cpu"
        self._losses = group.share(_Losses(self._learning, autocast))
        if average is not None:  # the copy may have got its weights from another learner
            classifier.load_state_dict(self._learning.state_dict())
        self.moved_words: Tensor | None = None
        self.step = GradientStep("supervised", self._learning, config, ("embedding.",), backend)

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
        dropout_keys: Tensor,
    ) -> SupervisedStats:
        """One optimiser step; all learners of the group must make it.

        Args:
            batch: this learner's shard, which may be empty.
            selections: S x bool [B, 2, N_s], or None for every token.
            number: of the update in the run, from 0, for the learning rate's decay.
            dropout_keys: int64 [B], see `example_keys`: masks are functions of them.

        Raises:
            NonFiniteError: on a non-finite loss or gradient; no parameter has changed then.
            LearnerError: another learner of the group died or hung.
        """
        self._learning.train()
        with self._group.guard():
            with keyed_dropout(dropout_keys):
                loss, hits = self._losses(batch, selections)
            count = loss.new_tensor(len(batch.labels), dtype=torch.float64)
            local = torch.stack([loss.detach().double(), hits.double(), count])
            total, right, examples = self._group.sum(local).tolist()
            norm = self.step(loss / examples, number, total / examples)
        self._follow(number)
        self.moved_words = self._rows_with_gradient()
        scores = batch.labels.is_floating_point()
        return SupervisedStats(total / examples, norm, None if scores else right / examples)

    def _rows_with_gradient(self) -> Tensor | None:
        """Int64 [R], or None where rows without a gradient may have moved, too."""
        gradient = self._learning.embedding.trainable.grad
        if self._average is not None or gradient is None or not gradient.is_sparse:
            return None
        return gradient.indices()[0]

    @torch.no_grad()
    def _follow(self, number: int) -> None:
        """Move the classifier towards the learning copy."""
        if self._average is not None:
            keep = min(self._average, (1 + number) / (10 + number))
            pairs = zip(self._classifier.parameters(), self._learning.parameters(), strict=True)
            for follower, leader in pairs:
                follower.lerp_(leader, 1 - keep)

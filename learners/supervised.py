"""The supervised learner: updates the classifier (reward model) and nothing else.

Legend: B examples of this learner's shard, S sentences an example, N_s tokens of slot s.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from rss_rl.config import OptimizerConfig
from rss_rl.learners.group import ALONE, Group
from rss_rl.learners.optim import GradientStep
from rss_rl.learners.updates import Gradients, under
from rss_rl.models.classifier import Classifier
from rss_rl.models.dropout import keyed_dropout
from rss_rl.models.embedding import RowAverage
from rss_rl.models.inputs import TensorBatch
from rss_rl.ops.losses import soft_cross_entropy
from rss_rl.ops.matmul import products_in

_OPTIMIZER, _COPY, _AVERAGE, _TEACHER = "optimizer/", "copy/", "average/", "teacher/"
"""Prefixes of the names of a state."""


class _Losses(nn.Module):
    """Sums over the examples of a shard: objective, loss of the label, correct predictions."""

    def __init__(
        self, classifier: Classifier, autocast: torch.dtype | None, distillation: float
    ) -> None:
        super().__init__()
        self.classifier = classifier
        self._autocast = autocast
        self._distillation = distillation

    def forward(
        self, batch: TensorBatch, selections: Sequence[Tensor] | None, targets: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """`targets` [B, C] are the teacher's probabilities; None: the label is the only target."""
        with products_in(self._autocast, batch.labels.device):
            logits = self.classifier(batch.tokens, batch.valid, selections, batch.marks)
        hits = (self.classifier.predict(logits.detach()) == batch.labels).sum(dtype=torch.float64)
        loss = batch.weighed(self.classifier.losses(logits, batch.labels)).sum()
        if targets is None:
            return loss, loss.detach(), hits
        distilled = batch.weighed(soft_cross_entropy(logits.float(), targets)).sum()
        objective = (1 - self._distillation) * loss + self._distillation * distilled
        return objective, loss.detach(), hits


class SupervisedLearner:
    """Minimises mean(-log p(y* | x*, selection)) + gamma |theta_s|^2 over the classifier.

    With `average`, a copy of the classifier learns, and the classifier itself is the running
    average of the copy's weights, theta <- m theta + (1 - m) theta_copy (Polyak and Juditsky 1992):
    a reward model that moves smoothly, and a better one where data are few.

    With `distillation` d, an update on selections minimises (1 - d) times that loss plus d times
    the cross-entropy with a teacher: the classifier as it was before the first such update,
    reading every token, without dropout.

    Args:
        autocast: dtype of matrix products, or None for float32.
        average: m in (0, 1), or None for a classifier that learns itself. In update t of the run at
            most (1 + t) / (10 + t), so that the first weights are soon forgotten.
        group: learners that share each batch; after an error in one of them it is of no use.
    An update of the word vectors costs what its batch has of words, see `RowAdam` and `RowAverage`.
    `moved_words` has the word vectors that the last update moved, int64 [R]; None = any of them.
    With an average by row, whose other rows move as the clock does, it has those that were written.
    """

    def __init__(
        self,
        classifier: Classifier,
        config: OptimizerConfig,
        autocast: torch.dtype | None,
        average: float | None = None,
        group: Group = ALONE,
        *,
        distillation: float = 0.0,
    ) -> None:
        self._classifier = classifier
        self._autocast = autocast
        self._distils = distillation > 0
        self._teacher: Classifier | None = None
        self._learning = classifier if average is None else copy.deepcopy(classifier)
        self._average = average
        self._group = group
        embedding = self._learning.embedding
        # An accelerator has the bandwidth for dense gradients.
        learns = embedding.trainable.requires_grad
        sparse = embedding.trainable.device.type == "cpu" and learns
        embedding.gradient_by_row = sparse
        apart = ("classifier.embedding.trainable",) if sparse else ()
        self._losses = group.share(_Losses(self._learning, autocast, distillation), apart)
        if average is not None:  # the copy may have got its weights from another learner
            classifier.load_state_dict(self._learning.state_dict())
        self.moved_words: Tensor | None = None
        self.step = GradientStep(
            "supervised",
            self._learning,
            config,
            ("embedding.",),
            group=group,
        )
        self._rows: RowAverage | None = None
        if average is not None and sparse:
            self._rows = RowAverage(embedding.trainable.detach())
            self._classifier.embedding.average = self._rows

    def state_dict(self) -> dict[str, Tensor]:
        """All state besides the classifier's own weights.

        These are the optimizer's state, the weights of the learning copy, how far the average's
        rows are behind, and the teacher's weights.
        """
        parts = {_OPTIMIZER: self.step.state_dict()}
        if self._teacher is not None:
            parts[_TEACHER] = self._teacher.state_dict()
        if self._average is not None:
            parts[_COPY] = self._learning.state_dict()
        if self._rows is not None:
            written = self._classifier.embedding.trainable.detach()
            parts[_AVERAGE] = {
                "written": written, "clock": self._rows.clock, "since": self._rows.since
            }  # fmt: skip
        return {f"{part}{name}": value for part in parts for name, value in parts[part].items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state_dict`, after the weights of the classifier itself.

        Raises:
            RuntimeError: names or shapes that do not fit.
            CheckpointError: the same, of the optimizer's state.
        """
        teacher, behind = under(_TEACHER, state), under(_AVERAGE, state)
        self._teacher = None
        if teacher and self._distils:
            self._freeze_teacher(teacher)
        if self._average is not None:
            self._learning.load_state_dict(under(_COPY, state))
        if self._rows is not None:
            self._load_rows(self._rows, behind)
        elif behind:
            raise RuntimeError("the weight average is one by row")
        self.step.load_state_dict(under(_OPTIMIZER, state))

    def _freeze_teacher(self, weights: Mapping[str, Tensor]) -> Classifier:
        teacher = copy.deepcopy(self._learning).requires_grad_(False).eval()
        teacher.zero_grad()
        teacher.load_state_dict(weights)
        self._teacher = teacher
        return teacher

    @torch.no_grad()
    def _targets(self, batch: TensorBatch) -> Tensor:
        """The teacher's probabilities from every token, [B, C]."""
        teacher = self._teacher or self._freeze_teacher(self._classifier.state_dict())
        with products_in(self._autocast, batch.labels.device):
            logits = teacher(batch.tokens, batch.valid, None, batch.marks)
        return torch.softmax(logits.float(), -1)

    def _load_rows(self, rows: RowAverage, tensors: Mapping[str, Tensor]) -> None:
        written = self._classifier.embedding.trainable.detach()
        state = {"written": written, "clock": rows.clock, "since": rows.since}
        kinds = [{k: (v.shape, v.dtype) for k, v in each.items()} for each in (tensors, state)]
        if kinds[0] != kinds[1]:
            raise RuntimeError("the weight average's rows do not fit")
        for name, value in state.items():
            value.copy_(tensors[name])

    def gradients(
        self,
        batch: TensorBatch,
        selections: Sequence[Tensor] | None,
        *,
        number: int,
        dropout_keys: Tensor,
    ) -> Gradients:
        """Compute the gradients of an update; all learners of the group must call it.

        Args:
            batch: this learner's shard, which may be empty.
            selections: S x bool [B, 2, N_s], or None for every token.
            number: of the update in the run, from 0, for the learning rate's decay.
            dropout_keys: int64 [B], see `example_keys`: masks are functions of them.

        Returns:
            Mean of the label's loss, without L2, in nats (or score²); gradient norm before
            clipping; share of examples predicted right, with dropout, unless labels are scores.

        Raises:
            LearnerError: another learner of the group died or hung.
        """
        scores = batch.labels.is_floating_point()
        self._learning.train()
        with self._group.guard():
            targets = self._targets(batch) if self._distils and selections is not None else None
            with keyed_dropout(dropout_keys):
                objective, loss, hits = self._losses(batch, selections, targets)
            sums = self._group.sum(torch.stack([loss, hits]))
            examples = batch.global_size
            norm = self.step.prepare(number, (objective, 1 / examples))

        def metrics(numbers: list[float]) -> dict[str, float]:
            total, right, norm = numbers
            self.step.clip(total / examples, norm)
            scalars = {"train/loss": total / examples, "train/gradient_norm": norm}
            return scalars if scores else scalars | {"train/accuracy": right / examples}

        return Gradients([sums, norm[None]], metrics)

    @torch.no_grad()
    def apply(self, number: int) -> None:
        """Step by what was learnt in update `number`; until then no parameter has changed."""
        self.moved_words = moved = self._rows_with_gradient()
        if self._average is None:
            self.step.apply()
            return
        rows, words = self._rows, self._classifier.embedding.trainable
        keep = min(self._average, (1 + number) / (10 + number))
        if rows is not None and moved is not None:
            rows.follow(words, moved, keep)
        self.step.apply()
        followers: list[Tensor] = []
        leaders: list[Tensor] = []
        pairs = zip(self._classifier.parameters(), self._learning.parameters(), strict=True)
        for follower, leader in pairs:
            if leader.requires_grad and (rows is None or follower is not words):
                followers.append(follower)
                leaders.append(leader)
        torch._foreach_lerp_(followers, leaders, 1 - keep)

    def _rows_with_gradient(self) -> Tensor | None:
        """Int64 [R], or None where rows without a gradient may have moved, too."""
        table = self._learning.embedding.trainable
        if not table.requires_grad:
            return torch.zeros(0, dtype=torch.int64)
        gradient = table.grad
        follows = self._average is not None and self._rows is None
        if follows or gradient is None or not gradient.is_sparse:
            return None
        rows: Tensor = gradient.indices()[0]
        return rows

"""The protocol of metrics, their setup and their input.

A component of kind `metric` builds a new object for each pass over a split: `add` is called with
each batch, then `result` once.

Legend: B examples, C classes (or other choices), S sentences, N_s tokens of slot s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rss_rl.types import Array, Batch, LabelSpec


@dataclass(frozen=True)
class MetricSetup:
    """The task that a metric is built for.

    labels     to be predicted
    sentences  sentence slots of an example, S
    """

    labels: LabelSpec
    sentences: int = 1


@dataclass(frozen=True)
class Scored:
    """A batch with its selections, and the classifier's predictions under them.

    Without a trained classifier, predictions are None, and metrics with the capability
    `predictions` are not built.

    batch       examples with gold labels
    selections  S x bool [B, 2, N_s]
    moved       the same, moved to random tokens of their sentences, as chance level; empty without
                rationales
    predicted   [B]: number of a class, sentence or candidate, or a score
    losses      float32 [B], nats (scores: of the configured loss)
    logits      float32 [B, C]; -inf for choices that an example does not have
    odds        float32 [B], log-odds of the last class; None if labels are not classes
    """

    batch: Batch
    selections: tuple[Array, ...]
    moved: tuple[Array, ...] = ()
    predicted: Array | None = None
    losses: Array | None = None
    logits: Array | None = None
    odds: Array | None = None

    @property
    def probabilities(self) -> Array | None:
        """Softmax of the logits, over classes, sentences or candidates, float64 [B, C]."""
        if self.logits is None:
            return None
        wide = self.logits.astype(np.float64)
        weights: Array = np.exp(wide - wide.max(1, keepdims=True))
        result: Array = weights / weights.sum(1, keepdims=True)
        return result


class Metric(Protocol):
    """One measure of a pass, or several that share their sums.

    names  that `result` may return: those of the component's measures that fit the data
    """

    @property
    def names(self) -> tuple[str, ...]:
        """See the class."""

    def add(self, scored: Scored) -> None:
        """Add one batch, which must not be modified."""

    def result(self) -> dict[str, float]:
        """The measures of all batches, without undefined ones."""

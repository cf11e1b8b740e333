"""What a metric is, what it is built from and what it is given.

A component of kind `metric` builds a fresh object for each pass over a split: `add` is called with
one batch after the other, `result` once.

Legend: B examples, C classes (or what else is chosen from), S sentences, N_s tokens of slot s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rss_rl.types import Array, Batch, LabelSpec


@dataclass(frozen=True)
class MetricSetup:
    """What a metric is built from.

    labels     what is predicted
    sentences  sentence slots an example has, S
    """

    labels: LabelSpec
    sentences: int = 1


@dataclass(frozen=True)
class Scored:
    """A batch with its selections, and what the classifier predicts from them alone.

    Where a run has no trained classifier, what it would predict is None: metrics with the
    capability `predictions` are not built there.

    batch       gold labels and whatever else the data tell of the examples
    selections  S x bool [B, 2, N_s]
    moved       the same, moved to random tokens of the same sentence: what chance would keep; none
                where nobody marked words
    predicted   [B]: number of a class, sentence or candidate, or a score
    losses      float32 [B], nats (scores: of the configured loss)
    logits      float32 [B, C]; -inf for what an example does not offer
    odds        float32 [B], log-odds of the last class; None where labels are no classes
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
        """Of classes, sentences or candidates: the softmax of the logits, float64 [B, C]."""
        if self.logits is None:
            return None
        wide = self.logits.astype(np.float64)
        weights: Array = np.exp(wide - wide.max(1, keepdims=True))
        result: Array = weights / weights.sum(1, keepdims=True)
        return result


class Metric(Protocol):
    """One measure of a pass, or several that share their sums.

    names  what `result` may return here: of the component's measures those that fit the data
    """

    @property
    def names(self) -> tuple[str, ...]:
        """See the class."""

    def add(self, scored: Scored) -> None:
        """Take in one batch; it must not be changed."""

    def result(self) -> dict[str, float]:
        """The measures of all batches; one that is undefined there is left out."""

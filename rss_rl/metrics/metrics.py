"""Metrics: what is measured of a split's selections and predictions.

A metric is built anew for each pass over a split: `add` is called with each batch, then `result`
once. Those of whole columns collect what batches hold, and measure all of it at the end.

Legend: B examples, S sentences, N_s tokens of slot s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np

from rss_rl.config import MetricName
from rss_rl.metrics.measures import ACCURACY, CORRELATION, RANKING, RATIONALES, names_of
from rss_rl.ops.scores import (
    choice_metrics,
    class_metrics,
    precision_recall_f1,
    ranking_metrics,
    score_metrics,
)
from rss_rl.types import Array, Batch, LabelSpec


@dataclass(frozen=True)
class Scored:
    """A batch with its selections, and the classifier's predictions under them.

    Without a trained classifier, predictions are None.

    batch       examples with gold labels
    selections  S x bool [B, 2, N_s]
    moved       the same, moved to random tokens of their sentences, as chance level; empty without
                rationales
    predicted   [B]: number of a class, sentence or candidate, or a score
    losses      float32 [B], nats (scores: of the configured loss)
    odds        float32 [B], log-odds of the last class; None if labels are not classes
    """

    batch: Batch
    selections: tuple[Array, ...]
    moved: tuple[Array, ...] = ()
    predicted: Array | None = None
    losses: Array | None = None
    odds: Array | None = None


class Metric(Protocol):
    """One measure of a pass, or several that share their sums.

    names  that `result` may return
    """

    @property
    def names(self) -> tuple[str, ...]:
        """See the class."""

    def add(self, scored: Scored) -> None:
        """Add one batch, which must not be modified."""

    def result(self) -> dict[str, float]:
        """The measures of all batches, without undefined ones."""


@dataclass
class _Columns:
    """See `Metric`.

    names    see there
    read     arrays [B] of a batch; empty if it has none
    measure  of the joined columns
    """

    names: tuple[str, ...]
    read: Callable[[Scored], tuple[Array, ...]]
    measure: Callable[..., dict[str, float]]
    _found: list[tuple[Array, ...]] = field(default_factory=list)

    def add(self, scored: Scored) -> None:
        """See `Metric`."""
        if found := self.read(scored):
            self._found.append(found)

    def result(self) -> dict[str, float]:
        """See `Metric`; empty without a batch."""
        if not self._found:
            return {}
        return self.measure(*map(np.concatenate, zip(*self._found, strict=True)))


def _predictions(scored: Scored) -> tuple[Array, ...]:
    """Predicted and gold labels."""
    assert scored.predicted is not None
    return scored.predicted, scored.batch.labels


def _with_odds(scored: Scored) -> tuple[Array, ...]:
    odds = () if scored.odds is None else (scored.odds,)
    return (*_predictions(scored), *odds)


def _accuracy(labels: LabelSpec) -> Metric:
    """Accuracy and majority accuracy; of classes also macro-F1, and how many the split lacks; of
    two classes also ROC AUC."""
    names = names_of(ACCURACY)
    if labels.chooses:
        return _Columns(names[:2], _predictions, choice_metrics)
    measure = partial(class_metrics, classes=len(labels.names))
    if len(labels.names) == 2:
        return _Columns(names, _with_odds, measure)
    return _Columns((*names[:3], *names[4:]), _predictions, measure)


def _correlation(labels: LabelSpec) -> Metric:
    return _Columns(names_of(CORRELATION), _predictions, score_metrics)


def _ranking(labels: LabelSpec) -> Metric:
    """Answers sorted by the log-odds of the last class, which stands for a right answer."""

    def answers(scored: Scored) -> tuple[Array, ...]:
        batch = scored.batch
        if batch.questions is None or scored.odds is None:
            return ()
        return scored.odds, batch.labels == len(labels.names) - 1, batch.questions

    return _Columns(names_of(RANKING), answers, ranking_metrics)


class _Rationales:
    """Agreement of selections with the words that people marked, over all tokens of a split.

    A token is kept as head, as dependent or as both. `rationale_f1_random` is the chance level: the
    F1 of the same selections moved to random tokens of their sentences. Of a pair, a text without a
    marked token (such as the question about a passage) does not count.
    """

    names = names_of(RATIONALES)

    def __init__(self, labels: LabelSpec) -> None:
        self._known = False
        self._found = self._found_at_random = self._kept = self._wanted = 0

    def add(self, scored: Scored) -> None:
        """See `Metric`."""
        slots = scored.batch.rationale or ()
        for slot, rationale in enumerate(slots):
            self._known = True
            counts = rationale.any(1, keepdims=True) | (len(slots) == 1)  # [B, 1]
            union = scored.selections[slot].any(1) & counts  # [B, N_s]
            self._found += int((union & rationale).sum())
            self._found_at_random += int((scored.moved[slot].any(1) & rationale).sum())
            self._kept += int(union.sum())
            self._wanted += int(rationale.sum())

    def result(self) -> dict[str, float]:
        """See `Metric`."""
        if not self._known:
            return {}
        scores = precision_recall_f1(self._found, self._kept, self._wanted)
        at_random = precision_recall_f1(self._found_at_random, self._kept, self._wanted)
        return dict(zip(self.names, (*scores, at_random[2]), strict=True))


class MetricKind(NamedTuple):
    """What a metric is for.

    build   of the labels of a task
    labels  kinds of labels that it is for
    needs   of the data or the run: `questions` with rival answers, `rationales`, `predictions`
    main    its first measure picks the best checkpoint where best_metric is auto
    """

    build: Callable[[LabelSpec], Metric]
    labels: tuple[str, ...]
    needs: tuple[str, ...]
    main: bool = False


_CHOICES = ("classes", "sentence", "candidate")
METRICS: Mapping[MetricName, MetricKind] = MappingProxyType(
    {
        "accuracy": MetricKind(_accuracy, _CHOICES, ("predictions",), main=True),
        "correlation": MetricKind(_correlation, ("score",), ("predictions",), main=True),
        "ranking": MetricKind(_ranking, ("classes",), ("predictions", "questions")),
        "rationales": MetricKind(_Rationales, (*_CHOICES, "score"), ("rationales",)),
    }
)
"""By the names of `evaluation.metrics`."""

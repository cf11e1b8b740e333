"""Accuracy, and measures of it for unbalanced labels."""

from __future__ import annotations

import numpy as np

from rss_rl.components import Component, Measure, NoOptions
from rss_rl.metrics.protocol import MetricSetup, Scored
from rss_rl.ops.scores import choice_metrics, class_metrics
from rss_rl.types import Array

_OF_CHOICES = ("accuracy", "majority_accuracy")


class _Accuracy:
    """Accuracy and majority accuracy; of classes also macro-F1; of two classes also ROC AUC."""

    def __init__(self, setup: MetricSetup, options: NoOptions) -> None:
        self._chooses = setup.labels.chooses
        self._two = len(setup.labels.names) == 2
        more = ("macro_f1", "roc_auc") if self._two else ("macro_f1",)
        self.names = _OF_CHOICES if self._chooses else (*_OF_CHOICES, *more)
        self._gold: list[Array] = []
        self._predicted: list[Array] = []
        self._odds: list[Array] = []

    def add(self, scored: Scored) -> None:
        assert scored.predicted is not None
        self._gold.append(scored.batch.labels)
        self._predicted.append(scored.predicted)
        if scored.odds is not None:
            self._odds.append(scored.odds)

    def result(self) -> dict[str, float]:
        if not self._gold:
            return {}
        gold, predicted = np.concatenate(self._gold), np.concatenate(self._predicted)
        if self._chooses:
            return choice_metrics(predicted, gold)
        odds = np.concatenate(self._odds) if self._two and self._odds else None
        return class_metrics(predicted, gold, odds)


ACCURACY = Component(
    kind="metric",
    name="accuracy",
    help="Share of correct predictions; also the majority's, macro-F1, and the area under ROC.",
    build=_Accuracy,
    capabilities=frozenset({"classes", "sentence", "candidate", "predictions", "standard", "main"}),
    measures=(
        Measure(
            "accuracy",
            "accuracy",
            "correct predictions (not for scores)",
            unit="share",
            percent=True,
            brief=True,
        ),
        Measure(
            "majority_accuracy",
            "majority",
            "accuracy of always predicting the most common label",
            unit="share",
            percent=True,
        ),
        Measure("macro_f1", "macro F1", "mean over classes of the F1 of each (class labels)"),
        Measure("roc_auc", "ROC AUC", "area under the ROC curve, by log-odds (two classes)"),
    ),
)

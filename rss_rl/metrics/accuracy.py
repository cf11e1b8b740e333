"""Accuracy, and measures of it for unbalanced labels."""

from __future__ import annotations

from rss_rl.components import Component, Measure, NoOptions
from rss_rl.metrics.columns import ColumnMetric, predictions
from rss_rl.metrics.protocol import MetricSetup, Scored
from rss_rl.ops.scores import choice_metrics, class_metrics
from rss_rl.types import Array

_OF_CHOICES = ("accuracy", "majority_accuracy")
_OF_CLASSES = (*_OF_CHOICES, "macro_f1")


def _accuracy(setup: MetricSetup, options: NoOptions) -> ColumnMetric:
    """Accuracy and majority accuracy; of classes also macro-F1; of two classes also ROC AUC."""
    if setup.labels.chooses:
        return ColumnMetric(_OF_CHOICES, predictions, choice_metrics)
    if len(setup.labels.names) == 2:
        return ColumnMetric((*_OF_CLASSES, "roc_auc"), _with_odds, class_metrics)
    return ColumnMetric(_OF_CLASSES, predictions, class_metrics)


def _with_odds(scored: Scored) -> tuple[Array, ...]:
    odds = () if scored.odds is None else (scored.odds,)
    return (*predictions(scored), *odds)


ACCURACY = Component(
    kind="metric",
    name="accuracy",
    help="Share of correct predictions; also the majority's, macro-F1, and the area under ROC.",
    build=_accuracy,
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

"""All measures that a report may hold: those of metrics, and those of the evaluation itself."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Measure:
    """A number in a report, and how reports show it.

    name             in reports, configurations and, behind `dev/<selection>/`, in TensorBoard
    label            heading of its column
    meaning, unit    for the table of all logged metrics
    percent          a share, shown in percent
    places           decimal places of other numbers
    largest          upper bound; math.inf if there is none
    lower_is_better  whether smaller is better
    brief            also shown where there is room for only a few numbers
    """

    name: str
    label: str
    meaning: str
    unit: str = "-"
    percent: bool = False
    places: int = 4
    largest: float = 1.0
    lower_is_better: bool = False
    brief: bool = False


_SHARE = "share of real tokens"
OWN = (
    Measure(
        "loss",
        "loss",
        "mean loss without dropout",
        unit="nats, or score²",
        largest=math.inf,
        places=3,
        lower_is_better=True,
        brief=True,
    ),
    Measure(
        "reward",
        "reward",
        "mean reward; with a target share only the score",
        unit="nats",
        largest=math.inf,
        brief=True,
    ),
    Measure(
        "kept", "kept", "words kept, as heads or dependents", unit=_SHARE, percent=True, brief=True
    ),
    Measure("heads_kept", "heads", "heads: words that attend to others", unit=_SHARE, percent=True),
    Measure(
        "dependents_kept",
        "dependents",
        "dependents: words that are attended to",
        unit=_SHARE,
        percent=True,
    ),
)
"""The evaluation's own measures."""
ACCURACY = (
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
    Measure(
        "absent_classes",
        "absent classes",
        "classes without a row in the split, of which its scores say nothing",
        unit="classes",
        places=0,
        largest=math.inf,
        lower_is_better=True,
    ),
)
CORRELATION = (
    Measure(
        "pearson", "Pearson r", "Pearson correlation with the gold score (score labels)", brief=True
    ),
    Measure(
        "spearman", "Spearman ρ", "Spearman rank correlation with the gold score (score labels)"
    ),
    Measure(
        "mse",
        "MSE",
        "mean squared error of the score (score labels)",
        unit="score²",
        largest=math.inf,
        lower_is_better=True,
    ),
)
RANKING = (
    Measure(
        "map",
        "MAP",
        "mean average precision over questions with right and wrong answers",
        brief=True,
    ),
    Measure("mrr", "MRR", "mean reciprocal rank of the first right answer over the same"),
    Measure(
        "map_all", "MAP, all", "`map` over all questions, 0 for questions without a right answer"
    ),
    Measure(
        "mrr_all", "MRR, all", "`mrr` over all questions, 0 for questions without a right answer"
    ),
)
RATIONALES = tuple(
    Measure(f"rationale_{name}", label, meaning, unit="share", places=3, brief=name == "f1")
    for name, label, meaning in (
        ("precision", "precision", "share of the kept tokens that are in the rationale"),
        ("recall", "recall", "share of the rationale's tokens that are kept"),
        ("f1", "F1", "harmonic mean of rationale precision and recall"),
        ("f1_random", "random F1", "F1 of as many randomly selected tokens"),
    )
)


def names_of(measures: Sequence[Measure]) -> tuple[str, ...]:
    """Their names."""
    return tuple(measure.name for measure in measures)


_OF_PREDICTIONS = (ACCURACY, CORRELATION, RANKING)


@functools.cache
def all_measures() -> Mapping[str, Measure]:
    """By name, in the order of columns: quality, loss and shares kept, agreement with people."""
    groups = (*_OF_PREDICTIONS, OWN, RATIONALES)
    return {measure.name: measure for group in groups for measure in group}


def find_measure(name: str) -> Measure:
    """The measure of this name; if there is none, one with its name as label."""
    unknown = Measure(name, name, "", largest=math.inf, brief=True)
    return all_measures().get(name, unknown)


def task_measures() -> list[str]:
    """All measures of predictions."""
    return [measure.name for group in _OF_PREDICTIONS for measure in group]


def leading_measures() -> tuple[str, ...]:
    """The measures that runs are compared by: the first one of each metric of predictions."""
    return tuple(group[0].name for group in _OF_PREDICTIONS)


def brief_measures(scores: Mapping[str, float | None]) -> dict[str, float]:
    """The few values to show when there is no room for all, in the order of columns."""
    shown = (n for n in in_order(scores) if find_measure(n).brief)
    return {name: value for name in shown if (value := scores[name]) is not None}


def in_order(names: Iterable[str]) -> list[str]:
    """Names in the order of columns; unknown ones come last."""
    found, known = set(names), all_measures()
    return [name for name in known if name in found] + sorted(found - set(known))


def format_measure(name: str, value: float | None) -> str:
    """A formatted value: shares in percent, others with their decimal places; `-` for None."""
    if value is None:
        return "-"
    measure = find_measure(name)
    return f"{value:.1%}" if measure.percent else f"{value:.{measure.places}f}"

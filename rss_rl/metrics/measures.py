"""All measures that a report may hold: of metrics, of the evaluation itself, of agreement."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

_OTHER_WORDS = {
    "random": "as many random words",
    "weights": "as many that a linear classifier weighs most",
}


@dataclass(frozen=True)
class Measure:
    """A number in a report, and how reports show it; docs/metrics.md says what each is.

    name             in reports, configurations and, behind `dev/<selection>/`, in TensorBoard
    label            heading of its column
    meaning          shown where a page's heading is pointed at
    percent          a share, shown in percent
    places           decimal places of other numbers
    lower_is_better  whether smaller is better
    brief            also shown where there is room for only a few numbers
    """

    name: str
    label: str
    meaning: str = ""
    percent: bool = False
    places: int = 4
    lower_is_better: bool = False
    brief: bool = False


_percent = partial(Measure, percent=True)
_rounded = partial(Measure, places=3)
OWN = (
    Measure(
        "loss", "loss", "mean loss without dropout", places=3, lower_is_better=True, brief=True
    ),
    Measure("reward", "reward", "mean reward, without a share's costs", brief=True),
    _percent("kept", "kept", "words kept, as heads or dependents", brief=True),
    _percent("heads_kept", "heads", "heads: words that attend to others"),
    _percent("dependents_kept", "dependents", "dependents: words that are attended to"),
    Measure("temperature", "temperature", "that would calibrate it; over 1: too sure of itself"),
)
"""The evaluation's own measures."""
ACCURACY = (
    _percent("accuracy", "accuracy", "correct predictions (not for scores)", brief=True),
    _percent("majority_accuracy", "majority", "accuracy of always the most common label"),
    Measure("macro_f1", "macro F1", "mean over classes of the F1 of each (class labels)"),
    Measure("roc_auc", "ROC AUC", "area under the ROC curve, by log-odds (two classes)"),
    Measure(
        "absent_classes",
        "absent classes",
        "classes without a row in the split",
        places=0,
        lower_is_better=True,
    ),
)
CORRELATION = (
    Measure("pearson", "Pearson r", "Pearson correlation with gold (score labels)", brief=True),
    Measure("spearman", "Spearman ρ", "Spearman rank correlation with gold (score labels)"),
    Measure("mse", "MSE", "mean squared error (score labels)", lower_is_better=True),
)
RANKING = (
    Measure("map", "MAP", "mean average precision over questions with both answers", brief=True),
    Measure("mrr", "MRR", "mean reciprocal rank of the first right answer over the same"),
    Measure("map_all", "MAP, all", "`map`, with 0 for questions without a right answer"),
    Measure("mrr_all", "MRR, all", "`mrr`, with 0 for questions without a right answer"),
)
RATIONALES = (
    _rounded(
        "rationale_precision", "precision", "share of the kept tokens that are in the rationale"
    ),
    _rounded("rationale_recall", "recall", "share of the rationale's tokens that are kept"),
    _rounded("rationale_f1", "F1", "harmonic mean of rationale precision and recall", brief=True),
    _rounded("rationale_f1_random", "random F1", "F1 of as many randomly selected tokens"),
)
AGREEMENT = (
    _percent("accuracy_all", "reading all"),
    _percent("accuracy_rest", "reading the rest"),
    _rounded("token_precision", "precision"),
    _rounded("token_recall", "recall"),
    _rounded("token_f1", "token F1"),
    _rounded("iou_f1", "IOU F1"),
    _rounded("auprc", "AUPRC"),
    _rounded("budget_token_f1", "token F1 at budgets"),
    _rounded("budget_iou_f1", "IOU F1 at budgets"),
    _rounded("comprehensiveness", "compr."),
    _rounded("sufficiency", "suff."),
    _rounded("similarity", "similarity"),
    _rounded("people_similarity", "people's"),
    _rounded("annotator_f1", "annotator F1"),
    _rounded("people_f1", "people's F1"),
)
"""Agreement with people, see `rss_rl.results.agreement`; never logged."""
OF_SWEEPS = (
    _percent("reader", "independent reader"),
    _percent("leak", "leak"),
    Measure("update_s", "s / update", places=3, lower_is_better=True),
    Measure("wall_seconds", "s in all", places=0, lower_is_better=True),
)
"""Of runs that are compared: see `rss_rl.results.trojan` for the first two; never logged."""


_OF_PREDICTIONS = (ACCURACY, CORRELATION, RANKING)


@functools.cache
def all_measures() -> dict[str, Measure]:
    """By name, in the order of columns: quality, loss and shares kept, agreement with people."""
    groups = (*_OF_PREDICTIONS, OWN, RATIONALES, AGREEMENT, OF_SWEEPS)
    return {measure.name: measure for group in groups for measure in group}


def find_measure(name: str) -> Measure:
    """The measure of this name; if there is none, one with its name as label."""
    unknown = Measure(name, name, brief=True)
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
    wanted, known = set(names), all_measures()
    return [name for name in known if name in wanted] + sorted(wanted - set(known))


def format_measure(name: str, value: float | None) -> str:
    """A formatted value: shares in percent, others with their decimal places; `-` for None."""
    if value is None:
        return "-"
    measure = find_measure(name)
    return f"{value:.1%}" if measure.percent else f"{value:.{measure.places}f}"


def describe_scores(scores: Mapping[str, float], separator: str = "  ") -> str:
    """Labels and values of scores, on one line."""
    parts = (f"{find_measure(name).label} {format_measure(name, v)}" for name, v in scores.items())
    return separator.join(parts)


def score_sentences(
    modes: Mapping[str, Mapping[str, float | None]], metric: str, split: str
) -> list[str]:
    """Sentences about the scores of a split.

    Args:
        modes: scores by mode of selection, see `rss_rl.training.evaluation`.
        metric: the measure to report.
    """
    label, lines = find_measure(metric).label, []
    chosen, all_words, linear = (modes.get(name, {}) for name in ("thresholded", "all", "linear"))
    value, kept = chosen.get(metric), chosen.get("kept")
    if value is not None and kept is not None:
        text = f"With {kept:.1%} of the words, the {label} on {split} is "
        text += format_measure(metric, value)
        for name, what in _OTHER_WORDS.items():
            if (other := modes.get(name, {}).get(metric)) is not None:
                text += f"; with {what} it is {format_measure(metric, other)}"
        lines.append(f"{text}.")
    for scores, what in ((all_words, "model trained to read"), (linear, "linear classifier of")):
        if (value := scores.get(metric)) is not None:
            score = format_measure(metric, value)
            lines.append(f"For a {what} every word, the {label} is {score}.")
    return lines

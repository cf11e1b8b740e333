"""Measures of predictions and selections, on numpy arrays.

Legend: n examples or tokens.
"""

from __future__ import annotations

import numpy as np

from rss_rl.types import Array

_TEMPERATURES = np.log(0.05), np.log(20)


def score_metrics(predicted: Array, gold: Array) -> dict[str, float]:
    """pearson, spearman and mse of predicted scores [n]; an undefined correlation is left out."""
    predicted, gold = predicted.astype(np.float64), gold.astype(np.float64)
    metrics = {"mse": float(np.mean((predicted - gold) ** 2))}
    if len(gold) > 1 and np.ptp(predicted) > 0 and np.ptp(gold) > 0:
        from scipy import stats  # takes a second to import, and most runs do not need it

        metrics["pearson"] = float(stats.pearsonr(predicted, gold).statistic)
        metrics["spearman"] = float(stats.spearmanr(predicted, gold).statistic)
    return metrics


def choice_metrics(predicted: Array, gold: Array) -> dict[str, float]:
    """accuracy of predictions [n], and majority_accuracy: that of the most frequent class of `gold`
    [n], below which a model has learnt nothing.
    """
    counts = np.unique_counts(gold).counts
    return {
        "accuracy": float((gold == predicted).mean()),
        "majority_accuracy": float(counts.max() / len(gold)),
    }


def class_metrics(
    predicted: Array, gold: Array, odds: Array | None = None, *, classes: int = 0
) -> dict[str, float]:
    """accuracy, majority_accuracy and macro_f1 of predicted classes, and roc_auc of two.

    absent_classes is the number of classes without a row, of which these say nothing.

    macro_f1 is the mean of F1 = 2 TP / (2 TP + FP + FN) over the classes in `gold` or `predicted`.

    Args:
        predicted, gold: int64 [n].
        odds: [n], increasing with the chance of class 1, if there are two classes.
        classes: that there are.

    Returns:
        roc_auc is left out where it is not defined, absent_classes where there are none.
    """
    from sklearn.metrics import f1_score  # takes a second to import, as scipy does

    macro = float(f1_score(gold, predicted, average="macro"))
    metrics = choice_metrics(predicted, gold) | {"macro_f1": macro}
    if (absent := classes - len(np.unique(gold))) > 0:
        metrics["absent_classes"] = float(absent)
    area = None if odds is None else roc_auc(odds, gold == 1)
    return metrics if area is None else metrics | {"roc_auc": area}


def best_temperature(logits: Array, gold: Array) -> float:
    """T for which softmax(logits / T) is likeliest on these rows: below 1, it was too unsure.

    Labels count as Platt's targets do, (n + 1) / (n + 2) for the right class: without a single
    error T would be 0.

    Args:
        logits: [n, C]. gold: int64 [n].

    Returns:
        In [0.05, 20].

    Source: Guo et al., On calibration of modern neural networks (ICML 2017); Platt 1999.
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    wide, unsure = logits.astype(np.float64), 1 / (len(gold) + 2)

    def loss(log_temperature: float) -> float:
        log_probs = log_softmax(wide / np.exp(log_temperature), 1)
        right = log_probs[np.arange(len(gold)), gold].mean()
        return float(-(1 - unsure) * right - unsure * log_probs.mean())

    return float(np.exp(minimize_scalar(loss, bounds=_TEMPERATURES, method="bounded").x))


def roc_auc(scores: Array, positive: Array) -> float | None:
    """Area under the ROC curve: how often a positive outscores a negative, ties counting half.

    Args:
        scores: [n]. positive: bool [n].

    Returns:
        None if all or none are positive, or a score is not finite.
    """
    from sklearn.metrics import roc_auc_score

    if positive.all() or not positive.any() or not np.isfinite(scores).all():
        return None
    return float(roc_auc_score(positive, scores))


def precision_recall_f1(right: int, kept: int, wanted: int) -> tuple[float, float, float]:
    """Precision, recall and F1 over tokens: `right` of the `kept` ones are among the `wanted`."""
    precision = right / kept if kept else 0.0
    recall = right / wanted if wanted else 0.0
    return precision, recall, harmonic_mean(precision, recall)


def harmonic_mean(precision: float, recall: float) -> float:
    """F1; 0 where both are 0."""
    total = precision + recall
    return 2 * precision * recall / total if total else 0.0


def ranking_metrics(scores: Array, right: Array, questions: Array) -> dict[str, float]:
    """How high the right answers of each question rank when its answers are sorted by score.

    AP = mean over the right answers of (right ones down to it) / (its rank); RR = 1 / (rank of the
    first right one). With ties, AP and RR are means over all orders of the tied answers, so neither
    a constant score nor the order of rows is favoured.

    Args:
        scores: [n]. right: bool [n]. questions: int64 [n], the number of each answer's question.

    Returns:
        map, mrr: means over the questions with right and wrong answers; absent if there are none.
        map_all, mrr_all: over all questions, 0 for those without a right answer.

    >>> ranking_metrics(np.array([3.0, 2.0, 1.0]), np.array([False, True, True]), np.zeros(3, int))
    {'map': 0.5833333333333333, 'mrr': 0.5, 'map_all': 0.5833333333333333, 'mrr_all': 0.5}
    """
    order = np.lexsort((-scores, questions))
    scores, right, questions = scores[order], right[order], questions[order]
    cuts = np.flatnonzero(np.diff(questions)) + 1
    each = np.array([
        (*_expected_ranks(s, r), r.any() and not r.all())
        for s, r in zip(np.split(scores, cuts), np.split(right, cuts), strict=True)
    ])  # fmt: skip
    telling = each[each[:, 2] > 0]
    metrics = {}
    if len(telling):
        metrics = {"map": float(telling[:, 0].mean()), "mrr": float(telling[:, 1].mean())}
    return metrics | {"map_all": float(each[:, 0].mean()), "mrr_all": float(each[:, 1].mean())}


def _expected_ranks(scores: Array, right: Array) -> tuple[float, float]:
    """Mean AP and RR of one question over the orders of tied answers; `scores` are descending.

    Source: McSherry and Najork, Computing information retrieval performance measures efficiently in
    the presence of tied scores (2008).
    """
    wanted = int(right.sum())
    if not wanted:
        return 0.0, 0.0
    precision, first = 0.0, 0.0
    above, above_right = 0, 0  # answers of higher scores, and how many of them are right
    for tied in np.split(right, np.flatnonzero(np.diff(scores)) + 1):
        size, hits = len(tied), int(tied.sum())
        if hits:
            position = np.arange(size)  # of a right answer among the tied ones; each equally likely
            others = position * (hits - 1) / max(1, size - 1)  # right ones before it, on average
            down_to = above_right + others + 1
            precision += float((down_to / (above + position + 1)).sum()) * hits / size
            if not above_right:
                first = _expected_reciprocal(above, size, hits)
        above, above_right = above + size, above_right + hits
    return precision / wanted, first


def _expected_reciprocal(above: int, size: int, hits: int) -> float:
    """Mean of 1 / rank of the first of `hits` right answers among `size` tied ones in any order."""
    expected, none_before = 0.0, 1.0
    for position in range(size - hits + 1):
        chance = none_before * hits / (size - position)  # the first right one stands here
        expected += chance / (above + position + 1)
        none_before *= 1 - hits / (size - position)
    return expected

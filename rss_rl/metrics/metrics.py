"""What is measured of a split, beside the evaluation's own measures; the choice of the best.

Legend: B examples, S sentences, N_s tokens of slot s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rss_rl.config import RunConfig
from rss_rl.errors import ConfigError, nearest
from rss_rl.metrics.measures import (
    ACCURACY,
    CORRELATION,
    RANKING,
    RATIONALES,
    Measure,
    find_measure,
)
from rss_rl.ops.scores import (
    best_temperature,
    choice_metrics,
    class_metrics,
    precision_recall_f1,
    ranking_metrics,
    score_metrics,
)
from rss_rl.types import Array, LabelSpec


def measured(labels: LabelSpec, columns: Mapping[str, Array]) -> dict[str, float]:
    """The measures of a split that are defined.

    Args:
        columns: arrays over all examples, as far as there are: `label` and `predicted` (the number
            of a class, sentence or candidate, or a score); `odds`, log-odds of the last class, and
            `logits` of all classes;
            `question`, see `rss_rl.types.Batch`; `marked`, see `marked_counts`.
    """
    metrics: dict[str, float] = {}
    if "predicted" in columns:
        read, count = (columns["predicted"], columns["label"]), len(labels.names)
        if labels.kind == "score":
            metrics = score_metrics(*read)
        elif labels.chooses:
            metrics = choice_metrics(*read)
        else:
            odds = columns.get("odds")
            metrics = class_metrics(*read, odds if count == 2 else None, classes=count)
            if (logits := columns.get("logits")) is not None:
                metrics["temperature"] = best_temperature(logits, columns["label"])
            if odds is not None and "question" in columns:  # the last class: a right answer
                right = columns["label"] == count - 1
                metrics |= ranking_metrics(odds, right, columns["question"])
    if "marked" in columns and columns["marked"][:, 3].any():  # else nobody marked this split
        agreed, at_random, kept, wanted = columns["marked"].sum(0).tolist()
        chance = precision_recall_f1(at_random, kept, wanted)[2]
        scores = (*precision_recall_f1(agreed, kept, wanted), chance)
        metrics |= {m.name: score for m, score in zip(RATIONALES, scores, strict=True)}
    return metrics


def marked_counts(
    marks: Sequence[Array], selections: Sequence[Array], moved: Sequence[Array]
) -> Array:
    """How the kept tokens of each example agree with those that people marked, int64 [B, 4].

    Tokens that are kept and marked; that are marked and in the selection moved to random tokens,
    the level of chance; kept; marked. A token is kept as head, as dependent or as both. Of a pair,
    a text without a marked token (such as the question about a passage) does not count.

    Args:
        marks: S x bool [B, N_s]. selections, moved: S x bool [B, 2, N_s].
    """
    counts = np.zeros((len(marks[0]), 4), np.int64)
    for wanted, selection, other in zip(marks, selections, moved, strict=True):
        kept = selection.any(1) & (wanted.any(1, keepdims=True) | (len(marks) == 1))  # [B, N_s]
        bits = (kept & wanted, other.any(1) & wanted, kept, wanted)
        counts += np.stack([of_slot.sum(1) for of_slot in bits], 1)
    return counts


def measure_names(
    config: RunConfig, labels: LabelSpec, *, questions: bool, rationales: bool
) -> list[str]:
    """The measures that a split may have, the task's main one first.

    Args:
        questions, rationales: whether it has questions with rival answers, and rationales.
    """
    measures = [*(RATIONALES if rationales else ())]
    if config.predicts:
        measures = [*(RANKING if questions and labels.kind == "classes" else ()), *measures]
        measures = [*(CORRELATION if labels.kind == "score" else ACCURACY), *measures]
    absent = {"macro_f1", "absent_classes"} if labels.chooses else set()
    absent |= set() if len(labels.names) == 2 else {"roc_auc"}
    return [measure.name for measure in measures if measure.name not in absent]


def best_metric(
    config: RunConfig, labels: LabelSpec, *, questions: bool, rationales: bool
) -> Measure:
    """The measure that `evaluation.best_metric` selects on the dev split.

    Args:
        questions, rationales: of the dev split, see `measure_names`.

    Raises:
        ConfigError: dev has no such metric; names the nearest one.
    """
    names = measure_names(config, labels, questions=questions, rationales=rationales)
    known = sorted([*names, "reward", *(["loss"] if config.predicts else [])])
    name = config.evaluation.best_metric
    if name == "auto":
        balanced = config.learner.class_weight is not None and "macro_f1" in names
        name = "macro_f1" if balanced else names[0] if config.predicts else "reward"
    if name not in known:
        why = "" if config.predicts else "the run trains no classifier, so "
        raise ConfigError(
            f"{why}dev has no '{name:.100}'{nearest(name[:100], known)}",
            where="evaluation.best_metric",
            remedy=f"Give auto or one of {', '.join(known)}",
        )
    return find_measure(name)

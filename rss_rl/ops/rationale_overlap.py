"""Agreement of a selection with human rationales, on numpy arrays.

A document is one text of n tokens; `kept` are the selected ones and `wanted` those that annotators
marked, both bool [n]; `scores` [n] rank its tokens. Metrics over documents are those of ERASER
(DeYoung et al., ERASER: a benchmark to evaluate rationalized NLP models, ACL 2020, section 4; where
the paper leaves a choice, its authors' code). Those of `ranked_scores` are what Brinner and
Zarriess report (Rationalizing transformer predictions via end-to-end differentiable self-training,
EMNLP 2024), as their code computes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import NamedTuple

import numpy as np

from rss_rl.ops.scores import harmonic_mean, precision_recall_f1, roc_auc
from rss_rl.types import Array

IOU_MATCH = 0.5
"""Intersection over union from which a selected span matches an annotated one. ERASER's paper says
'more than', its code, which produced the published figures, 'at least'."""
_TWENTIETHS = range(1, 20)
"""Budgets: .05, .10, ..., .95 of a document's tokens, over which figures are averaged."""


def document_scores(kept: Array, wanted: Array) -> tuple[float, float, float] | None:
    """Token precision, recall and F1 of a document; None if nothing is kept or wanted.

    Precision is 0 if nothing is kept, recall 0 if nothing is wanted. Means over documents, also of
    F1, are ERASER's macro average.
    """
    if not (kept.any() or wanted.any()):
        return None
    return precision_recall_f1(int((kept & wanted).sum()), int(kept.sum()), int(wanted.sum()))


def spans(bits: Array) -> Array:
    """Runs of True as rows (first, end), int64 [spans, 2]; `end` is exclusive.

    >>> spans(np.array([True, True, False, True])).tolist()
    [[0, 2], [3, 4]]
    """
    edges = np.diff(np.concatenate([[0], bits.astype(np.int8), [0]]))
    return np.stack([np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)], axis=1)


class SpanScores(NamedTuple):
    """Numbers of spans of one document: kept ones that match a wanted one, kept, wanted."""

    matched: int
    kept: int
    wanted: int


def span_scores(kept: Array, wanted: Array) -> SpanScores:
    """Runs of kept tokens against runs of wanted ones: IOU(a, b) = |a & b| / |a | b|.

    A kept span matches where its best IOU with a wanted one is at least IOU_MATCH.
    """
    overlaps = _span_overlaps(kept, wanted)
    best = overlaps.max(axis=1, initial=0.0)
    return SpanScores(int((best >= IOU_MATCH).sum()), *overlaps.shape)


def _span_overlaps(kept: Array, wanted: Array) -> Array:
    """IOU of each kept span with each wanted one, [kept spans, wanted spans]."""
    ours, theirs = spans(kept), spans(wanted)
    first = np.maximum(ours[:, None, 0], theirs[None, :, 0])
    end = np.minimum(ours[:, None, 1], theirs[None, :, 1])
    shared = np.maximum(0, end - first)
    sizes = np.diff(ours, axis=1) + np.diff(theirs, axis=1).T
    overlaps: Array = shared / (sizes - shared)
    return overlaps


def span_f1(documents: Sequence[SpanScores]) -> float:
    """ERASER's IOU F1: of the mean span precision and the mean span recall of documents.

    Precision is matched / kept over the documents that keep a span, recall matched / wanted over
    those with a wanted one; 0 where there are none.
    """
    precision = [d.matched / d.kept for d in documents if d.kept]
    recall = [d.matched / d.wanted for d in documents if d.wanted]
    if not precision or not recall:
        return 0.0
    return harmonic_mean(float(np.mean(precision)), float(np.mean(recall)))


def mean_overlap_f1(kept: Array, wanted: Array) -> float:
    """IOU F1 of a document without a threshold.

    Precision is the mean over kept spans of the best IOU with a wanted one, recall the mean over
    wanted spans of the best IOU with a kept one; 0 where there are none of either.
    """
    overlaps = _span_overlaps(kept, wanted)
    if not overlaps.size:
        return 0.0
    return harmonic_mean(float(overlaps.max(1).mean()), float(overlaps.max(0).mean()))


def best_tokens(scores: Array, count: int) -> Array:
    """The `count` tokens of highest score, bool [n]; ties go to the later token."""
    kept = np.zeros(len(scores), dtype=bool)
    kept[np.argsort(scores, kind="stable")[len(scores) - count :]] = True
    return kept


def budget_count(tokens: int, twentieths: int) -> int:
    """How many of n tokens rank above the threshold of a budget p = twentieths / 20.

    The threshold is the token of rank floor((1 - p) n), from 0, by ascending score; it is excluded.
    """
    return tokens - 1 - (20 - twentieths) * tokens // 20


class RankedScores(NamedTuple):
    """Metrics of a ranking of a document's tokens.

    budget_token_f1, budget_iou_f1  mean over budgets of the token F1 and of `mean_overlap_f1` of
                                    the tokens above each budget's threshold
    """

    budget_token_f1: float
    budget_iou_f1: float


def ranked_scores(scores: Array, wanted: Array) -> RankedScores | None:
    """F1 of the best-ranked tokens of a document and of their spans; None without a wanted token.

    Of equal scores the later token ranks higher.
    """
    if not wanted.any():
        return None
    budgets = [best_tokens(scores, budget_count(len(scores), part)) for part in _TWENTIETHS]
    return RankedScores(
        float(np.mean([_token_f1(kept, wanted) for kept in budgets])),
        float(np.mean([mean_overlap_f1(kept, wanted) for kept in budgets])),
    )


def _token_f1(kept: Array, wanted: Array) -> float:
    scores = document_scores(kept, wanted)
    return 0.0 if scores is None else scores[2]


def precision_recall_area(scores: Array, wanted: Array) -> float | None:
    """Area under a document's precision-recall curve, by trapezoids.

    None without a wanted token, or with a score that is not finite.

    One point for each different score, tokens of at least that score being kept, and (recall 0,
    precision 1). If all scores are equal, the area is (1 + share wanted) / 2.
    """
    if not wanted.any() or not np.isfinite(scores).all():
        return None
    from sklearn.metrics import precision_recall_curve

    precision, recall, _ = precision_recall_curve(wanted, scores)
    return float(np.trapezoid(precision[::-1], recall[::-1]))  # from recall 0 on


def pair_overlap(maps: Sequence[Array]) -> tuple[float, float] | None:
    """Agreement of annotators: mean ROC area and F1 over ordered pairs of their maps, of bits.

    The first map of a pair serves as scores, the second is wanted. None if no pair can be scored.
    """
    pairs = list(permutations(maps, 2))
    areas = [roc_auc(one, other) for one, other in pairs]
    known = [area for area in areas if area is not None]
    scores = [document_scores(one, other) for one, other in pairs]
    f1 = [score[2] for score in scores if score is not None]
    return (float(np.mean(known)), float(np.mean(f1))) if known and f1 else None


def top_share(scores: Array, valid: Array, share: float) -> Array:
    """The tokens of highest score, `share` of each document's and at least one: bool [B, N].

    Ties go to the earlier token.

    Args:
        scores: [B, N]. valid: bool [B, N], True = real token. share: in [0, 1].
    """
    lengths = valid.sum(1)
    count = np.minimum(lengths, np.maximum(1, np.rint(share * lengths)))
    order = np.argsort(np.where(valid, -scores, np.inf), axis=1, kind="stable")
    rank = np.argsort(order, axis=1, kind="stable")
    kept: Array = (rank < count[:, None]) & valid
    return kept


def shuffled_selection(selection: Array, valid: Array, uniforms: Array) -> Array:
    """A selection under a random permutation of each sentence's real tokens, bool [B, R, N].

    Args:
        selection: bool [B, R, N]. valid: bool [B, N]. uniforms: [B, N], the order of the tokens.
    """
    # Real tokens first, in random order, then padding: a permutation of each.
    order = np.argsort(np.where(valid, uniforms, 2.0), axis=1)  # [B, N]
    moved: Array = np.take_along_axis(selection, order[:, None, :], axis=2) & valid[:, None]
    return moved

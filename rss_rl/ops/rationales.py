"""How well a selection agrees with the words that people marked, on numpy arrays.

A document is one text of n tokens; `kept` is what was selected of it and `wanted` what people
marked, both bool [n]; `scores` [n] rank its tokens. Figures over documents are those of ERASER
(DeYoung et al., ERASER: a benchmark to evaluate rationalized NLP models, ACL 2020, section 4, and
where the paper leaves a choice, the program that its authors published).
"""

from __future__ import annotations

__all__ = [
    "IOU_MATCH",
    "SpanScores",
    "document_scores",
    "moved_at_random",
    "pair_overlap",
    "precision_recall_area",
    "roc_area",
    "span_f1",
    "span_scores",
    "spans",
    "top_share",
]

from collections.abc import Sequence
from itertools import permutations
from typing import NamedTuple

import numpy as np

from rss_rl.types import Array

IOU_MATCH = 0.5
"""Intersection over union from which on a selected span counts as one that people marked. ERASER's
paper says 'more than', its program, which made the published figures, 'at least'."""


def _check_document(first: Array, second: Array) -> None:
    if first.ndim != 1 or first.shape != second.shape:
        raise ValueError(f"one number for each token, got {first.shape} and {second.shape}")


def document_scores(kept: Array, wanted: Array) -> tuple[float, float, float] | None:
    """Token precision, recall and F1 of a document; None where nothing is kept nor wanted.

    A document of which nothing is kept has precision 0, one without a marked word recall 0. Means
    over documents, F1 too, are ERASER's macro average.
    """
    _check_document(kept, wanted)
    if not (kept.any() or wanted.any()):
        return None
    found = int((kept & wanted).sum())
    precision, recall = found / max(1, int(kept.sum())), found / max(1, int(wanted.sum()))
    return precision, recall, _harmonic(precision, recall)


def _harmonic(precision: float, recall: float) -> float:
    total = precision + recall
    return 2 * precision * recall / total if total else 0.0


def spans(bits: Array) -> Array:
    """Runs of True as rows (first, end), int64 [spans, 2]; `end` is the place behind the last.

    >>> spans(np.array([True, True, False, True])).tolist()
    [[0, 2], [3, 4]]
    """
    edges = np.diff(np.concatenate([[0], bits.astype(np.int8), [0]]))
    return np.stack([np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)], axis=1)


class SpanScores(NamedTuple):
    """Spans of one document: those selected that match one of people, selected and wanted ones."""

    matched: int
    kept: int
    wanted: int


def span_scores(kept: Array, wanted: Array) -> SpanScores:
    """Runs of kept tokens against runs of wanted ones: IOU(a, b) = |a & b| / |a | b|.

    A kept span matches where its best IOU with a wanted one is at least IOU_MATCH.
    """
    _check_document(kept, wanted)
    ours, theirs = spans(kept), spans(wanted)
    first = np.maximum(ours[:, None, 0], theirs[None, :, 0])  # [ours, theirs]
    end = np.minimum(ours[:, None, 1], theirs[None, :, 1])
    shared = np.maximum(0, end - first)
    sizes = np.diff(ours, axis=1) + np.diff(theirs, axis=1).T
    best = (shared / (sizes - shared)).max(axis=1, initial=0.0)
    return SpanScores(int((best >= IOU_MATCH).sum()), len(ours), len(theirs))


def span_f1(documents: Sequence[SpanScores]) -> float:
    """ERASER's IOU F1: of the mean span precision and the mean span recall of documents.

    Precision is matched / kept over the documents that keep a span, recall matched / wanted over
    those with a wanted one; 0 where there are none.
    """
    precision = [d.matched / d.kept for d in documents if d.kept]
    recall = [d.matched / d.wanted for d in documents if d.wanted]
    if not precision or not recall:
        return 0.0
    return _harmonic(float(np.mean(precision)), float(np.mean(recall)))


def precision_recall_area(scores: Array, wanted: Array) -> float | None:
    """Area under a document's precision-recall curve, by trapezoids; None without a wanted token.

    One point for each different score, tokens of at least that score being kept, and (recall 0,
    precision 1). Of tokens that all score alike the area is (1 + share wanted) / 2.
    """
    _check_document(scores, wanted)
    total = int(wanted.sum())
    if not total:
        return None
    order = np.argsort(-scores, kind="stable")
    last = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    found = np.cumsum(wanted[order])[last]
    precision = np.concatenate([[1.0], found / (last + 1)])
    recall = np.concatenate([[0.0], found / total])
    return float(np.trapezoid(precision, recall))


def roc_area(scores: Array, wanted: Array) -> float | None:
    """Chance that a wanted token scores above another one, ties by half; None where all are alike.

    This is the area under the ROC curve.
    """
    _check_document(scores, wanted)
    total, others = int(wanted.sum()), int((~wanted).sum())
    if not total or not others:
        return None
    from scipy import stats  # takes a second to load, which most runs do without

    above = float(stats.rankdata(scores)[wanted].sum()) - total * (total + 1) / 2
    return above / (total * others)


def pair_overlap(maps: Sequence[Array]) -> tuple[float, float] | None:
    """How well people agree: mean over ordered pairs of annotators' maps of ROC area and F1.

    One's map, of bits, scores the tokens that another one wanted. None where no pair can be scored.
    """
    pairs = list(permutations(maps, 2))
    areas = [roc_area(one.astype(float), other) for one, other in pairs]
    known = [area for area in areas if area is not None]
    scores = [document_scores(one, other) for one, other in pairs]
    f1 = [score[2] for score in scores if score is not None]
    return (float(np.mean(known)), float(np.mean(f1))) if known and f1 else None


def top_share(scores: Array, valid: Array, share: float) -> Array:
    """The tokens of highest score, `share` of each document's and at least one: bool [B, N].

    Of equal scores the earlier token goes first.

    Args:
        scores: [B, N]. valid: bool [B, N], True = real token. share: in [0, 1].
    """
    if scores.shape != valid.shape or valid.ndim != 2:
        raise ValueError(f"scores {scores.shape} and valid {valid.shape} are not one [B, N]")
    lengths = valid.sum(1)
    count = np.minimum(lengths, np.maximum(1, np.rint(share * lengths)))
    order = np.argsort(np.where(valid, -scores, np.inf), axis=1, kind="stable")
    rank = np.argsort(order, axis=1, kind="stable")
    kept: Array = (rank < count[:, None]) & valid
    return kept


def moved_at_random(selection: Array, valid: Array, uniforms: Array) -> Array:
    """A selection under a random permutation of each sentence's real tokens, bool [B, R, N].

    Args:
        selection: bool [B, R, N]. valid: bool [B, N]. uniforms: [B, N], the order of the tokens.
    """
    # Real tokens lead in a random order, padding follows: a permutation of each.
    order = np.argsort(np.where(valid, uniforms, 2.0), axis=1)  # [B, N]
    moved: Array = np.take_along_axis(selection, order[:, None, :], axis=2) & valid[:, None]
    return moved

"""Measures of agreement with people, word by word and in the words of the papers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, permutations


def runs(bits: Sequence[bool]) -> list[set[int]]:
    """The places of each run of True."""
    found: list[set[int]] = []
    for place, bit in enumerate(bits):
        if bit and place and bits[place - 1]:
            found[-1].add(place)
        elif bit:
            found.append({place})
    return found


def f1(precision: float, recall: float) -> float:
    return 0.0 if precision + recall == 0 else 2 * precision * recall / (precision + recall)


def token_scores(kept: Sequence[bool], wanted: Sequence[bool]) -> tuple[float, float, float]:
    ours = {i for i, bit in enumerate(kept) if bit}
    theirs = {i for i, bit in enumerate(wanted) if bit}
    precision = len(ours & theirs) / len(ours) if ours else 0.0
    recall = len(ours & theirs) / len(theirs) if theirs else 0.0
    return precision, recall, f1(precision, recall)


def iou_f1(documents: Sequence[tuple[Sequence[bool], Sequence[bool]]]) -> float:
    """F1 of macro precision and macro recall of spans that overlap by half or more."""
    precision, recall = [], []
    for kept, wanted in documents:
        ours, theirs = runs(kept), runs(wanted)
        hits = sum(any(len(a & b) / len(a | b) >= 0.5 for b in theirs) for a in ours)
        if ours:
            precision.append(hits / len(ours))
        if theirs:
            recall.append(hits / len(theirs))
    if not precision or not recall:
        return 0.0
    return f1(sum(precision) / len(precision), sum(recall) / len(recall))


def curve_area(scores: Sequence[float], wanted: Sequence[bool]) -> float:
    """Trapezoids under (recall, precision) at every threshold that occurs."""
    points = [(0.0, 1.0)]
    for threshold in sorted(set(scores), reverse=True):
        kept = [score >= threshold for score in scores]
        precision, recall, _ = token_scores(kept, wanted)
        points.append((recall, precision))
    pairs = pairwise(points)
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairs)


def roc(scores: Sequence[float], wanted: Sequence[bool]) -> float:
    """Share of the pairs of a wanted and another token in the right order, ties by half."""
    high = [s for s, bit in zip(scores, wanted, strict=True) if bit]
    low = [s for s, bit in zip(scores, wanted, strict=True) if not bit]
    right = sum((a > b) + 0.5 * (a == b) for a in high for b in low)
    return right / (len(high) * len(low))


def people_similarity(maps: Sequence[Sequence[bool]]) -> float:
    """Mean ROC area over ordered pairs of maps."""
    areas = [roc([float(bit) for bit in a], b) for a, b in permutations(maps, 2)]
    return sum(areas) / len(areas)


def overlap_f1(kept: Sequence[bool], wanted: Sequence[bool]) -> float:
    """For each span of one kind its best IOU with one of the other: precision, recall, F1."""
    ours, theirs = runs(kept), runs(wanted)
    if not ours or not theirs:
        return 0.0
    precision = sum(max(len(a & b) / len(a | b) for b in theirs) for a in ours) / len(ours)
    recall = sum(max(len(a & b) / len(a | b) for a in ours) for b in theirs) / len(theirs)
    return f1(precision, recall)


def ranked(scores: Sequence[float], wanted: Sequence[bool]) -> dict[str, float]:
    """Shares .05 to .95: what scores above the score at that rank.

    Of equal scores the later one counts as higher.
    """
    pairs = [(score, place) for place, score in enumerate(scores)]
    ascending = sorted(pairs)
    token, spans = [], []
    for percent in range(5, 100, 5):
        threshold = ascending[(100 - percent) * len(pairs) // 100]
        kept = [pair > threshold for pair in pairs]
        token.append(token_scores(kept, wanted)[2])
        spans.append(overlap_f1(kept, wanted))
    return {"budget_token_f1": sum(token) / 19, "budget_iou_f1": sum(spans) / 19}

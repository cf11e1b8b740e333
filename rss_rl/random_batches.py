"""Random examples of any task, for tests of components.

Legend: B examples, S sentences, N_s tokens of slot s.
"""

from __future__ import annotations

import numpy as np

from rss_rl.types import ROLES, Array, Batch, LabelSpec

WORDS = 40
"""Different token ids; 0 is padding."""
_LENGTHS = (7, 1, 4, 5, 2, 6)
_CHOICES = 3


def random_batch(labels: LabelSpec, sentences: int, seed: int = 0) -> Batch:
    """Six examples with 1 to 7 tokens, rationales, and questions with rival answers.

    Args:
        labels: of the task; where they are a choice, examples have up to three candidates.
        sentences: S.
    """
    draw = np.random.default_rng(seed)
    count = len(_LENGTHS)
    tokens, valid = [], []
    for slot in range(sentences):
        lengths = np.roll(_LENGTHS, slot)
        real = np.arange(max(_LENGTHS)) < lengths[:, None]  # [B, N_s]
        tokens.append(np.where(real, draw.integers(1, WORDS, real.shape), 0))
        valid.append(real)
    rationale = tuple((draw.random(real.shape) < 0.5) & real for real in valid)
    marks = None
    if labels.kind == "score":
        gold: Array = draw.uniform(labels.low, labels.high, count).astype(np.float32)
    elif labels.chooses:
        choices = np.minimum(_CHOICES, _LENGTHS)
        numbers = np.arange(max(_LENGTHS)) * choices[:, None] // np.array(_LENGTHS)[:, None]
        marks = np.where(valid[0], numbers, -1)
        gold = draw.integers(0, choices)
    else:
        gold = np.arange(count, dtype=np.int64) % len(labels.names)
    questions = np.arange(count, dtype=np.int64) // 3 if labels.kind == "classes" else None
    rows = np.arange(count, dtype=np.int64)
    return Batch(rows, tuple(tokens), tuple(valid), gold, rationale, marks, questions)


def random_selections(batch: Batch, seed: int = 0) -> tuple[Array, ...]:
    """S x bool [B, 2, N_s]; nothing of the first example, all of the second."""
    draw = np.random.default_rng([seed, 1])
    chosen = [draw.random((len(batch), ROLES, v.shape[1])) < 0.5 for v in batch.valid]
    for selection in chosen:
        selection[0], selection[1] = False, True
    return tuple(s & v[:, None] for s, v in zip(chosen, batch.valid, strict=True))


def cut_batch(
    batch: Batch, selections: tuple[Array, ...], indices: Array
) -> tuple[Batch, tuple[Array, ...]]:
    """The examples at `indices` with their selections, padded to the longest of them."""
    part = batch.take(indices)
    widths = [max(1, int(v.sum(1).max())) for v in part.valid]

    def cut(arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        pairs = zip(arrays, widths, strict=True)
        return tuple(np.ascontiguousarray(array[..., :width]) for array, width in pairs)

    shorter = Batch(
        part.rows,
        cut(part.tokens),
        cut(part.valid),
        part.labels,
        None if part.rationale is None else cut(part.rationale),
        None if part.marks is None else np.ascontiguousarray(part.marks[:, : widths[0]]),
        part.questions,
    )
    return shorter, cut(tuple(s[indices] for s in selections))

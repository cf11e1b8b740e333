"""Splitting rows into batches of similar lengths: little padding, every row exactly once.

Legend: n rows, S sentence slots. A batch of b rows has b * (sum over slots of its longest sentence)
cells; those without a real token are padding.

Rows are bucketed by recursive splitting: they are sorted by the length in one slot and cut at a
multiple of the batch size, with the slot and cut that leave the fewest cells. Pairs of sentences
have two lengths, and sorting by one of them leaves about twice the padding.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rss_rl.types import Array

_CHUNK_ROWS = 1 << 16
"""Rows that are sorted by length together."""


def plain_batches(lengths: Array, batch_size: int, batch_tokens: int | None = None) -> list[Array]:
    """Batches for evaluation: deterministic, shortest first, each row exactly once.

    Large splits are batched in chunks of consecutive rows, so that a batch touches few shards.

    Args:
        lengths: int64 [n, S], real tokens of each sentence.
        batch_size: rows of a batch; one batch is smaller if n is not a multiple of it.
        batch_tokens: see `within_tokens`; None: any number.

    Returns:
        int64 [<= batch_size], the rows of each batch.
    """
    chunk = max(1, _CHUNK_ROWS // batch_size) * batch_size
    batches = []
    for start in range(0, len(lengths), chunk):
        rows = np.arange(start, min(start + chunk, len(lengths)), dtype=np.int64)
        batches += sorted(
            within_tokens(lengths, split_by_length(lengths, rows, batch_size), batch_tokens),
            key=lambda rows: (int(lengths[rows].max(axis=0).sum()), int(rows[0])),
        )
    return batches


def split_by_length(lengths: Array, rows: Array, batch_size: int) -> list[Array]:
    """Split `rows`, indices of `lengths` [n, S], into batches; equal lengths keep their order."""
    done: list[Array] = []
    waiting = [rows] if len(rows) else []
    while waiting:
        part = waiting.pop()
        if len(part) <= batch_size:
            done.append(part)
        else:
            waiting.extend(_best_cut(lengths, part, batch_size))
    return done


def within_tokens(
    lengths: Array, batches: Sequence[Array], batch_tokens: int | None
) -> list[Array]:
    """Split batches (indices of `lengths` [n, S]) that have more than `batch_tokens` cells.

    Padding counts, as it is computed, too. A row that has more by itself is a batch of its own.
    """
    if batch_tokens is None:
        return list(batches)
    return [part for rows in batches for part in _cut_by_tokens(lengths, rows, batch_tokens)]


def _cut_by_tokens(lengths: Array, rows: Array, most: int) -> list[Array]:
    """Fill batches up to `most` cells, longest rows first; a batch within `most` is kept."""
    if int(lengths[rows].max(axis=0).sum()) * len(rows) <= most:
        return [rows]
    order = rows[np.argsort(-lengths[rows].sum(axis=1), kind="stable")]
    starts, widest = [0], lengths[order[0]]
    for index, row in enumerate(order[1:].tolist(), start=1):
        widest = np.maximum(widest, lengths[row])
        if int(widest.sum()) * (index + 1 - starts[-1]) > most:
            starts.append(index)
            widest = lengths[row]
    return np.split(order, starts[1:])


def _best_cut(lengths: Array, rows: Array, batch_size: int) -> tuple[Array, Array]:
    cuts = np.arange(batch_size, len(rows), batch_size)  # [C]
    best_cells, best = -1, (rows, rows)
    for slot in range(lengths.shape[1]):
        order = rows[np.argsort(lengths[rows, slot], kind="stable")]
        ordered = lengths[order]  # [n, S]
        below = np.maximum.accumulate(ordered, axis=0)[cuts - 1].sum(axis=1)  # [C]
        above = np.maximum.accumulate(ordered[::-1], axis=0)[::-1][cuts].sum(axis=1)  # [C]
        cells = cuts * below + (len(rows) - cuts) * above
        index = int(np.argmin(cells))
        if best_cells < 0 or cells[index] < best_cells:
            best_cells = int(cells[index])
            best = (order[: cuts[index]], order[cuts[index] :])
    return best

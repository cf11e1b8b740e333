"""Random examples and selections.

Legend: B examples, S sentences, N_s tokens of slot s.
"""

from __future__ import annotations

import numpy as np
import small

from rss_rl.types import ROLES, Array, Batch

_LENGTHS = (7, 1, 4, 5, 2, 6)


def random_batch(sentences: int, seed: int = 0) -> Batch:
    """Six examples of three classes, with 1 to 7 tokens in each of S sentences."""
    draw = np.random.default_rng(seed)
    tokens, valid = [], []
    for slot in range(sentences):
        real = np.arange(max(_LENGTHS)) < np.roll(_LENGTHS, slot)[:, None]  # [B, N_s]
        tokens.append(np.where(real, draw.integers(1, small.WORDS, real.shape), 0))
        valid.append(real)
    rows = np.arange(len(_LENGTHS), dtype=np.int64)
    return Batch(rows, tuple(tokens), tuple(valid), rows % 3)


def random_selections(batch: Batch, seed: int = 0) -> tuple[Array, ...]:
    """S x bool [B, 2, N_s]; nothing of the first example, all of the second."""
    draw = np.random.default_rng([seed, 1])
    chosen = [draw.random((len(batch), ROLES, v.shape[1])) < 0.5 for v in batch.valid]
    for selection in chosen:
        selection[0], selection[1] = False, True
    return tuple(s & v[:, None] for s, v in zip(chosen, batch.valid, strict=True))

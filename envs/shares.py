"""Shares of the tokens that selections keep.

Legend: M selections, S sentences an example, N_s tokens of slot s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rss_rl.types import DEPENDENT, HEAD, Array


@dataclass(frozen=True)
class KeptShares:
    """Shares of the real tokens of all sentences of an example, float64 [M] each.

    heads       selected as head
    dependents  selected as dependent
    kept        selected as either
    """

    heads: Array
    dependents: Array
    kept: Array


def kept_shares(selections: Sequence[Array], valid: Sequence[Array]) -> KeptShares:
    """The share of the real tokens that each selection keeps; 0 if there are none.

    Args:
        selections: S x bool [M, 2, N_s]; bits on padding are ignored.
        valid: S x bool [M, N_s].
    """
    sizes = np.sum([v.sum(-1) for v in valid], axis=0)  # [M]

    def share(chosen: Sequence[Array]) -> Array:
        counts = [(c & v).sum(-1) for c, v in zip(chosen, valid, strict=True)]
        kept: Array = np.sum(counts, axis=0) / np.maximum(sizes, 1)
        return kept

    return KeptShares(
        heads=share([s[:, HEAD] for s in selections]),
        dependents=share([s[:, DEPENDENT] for s in selections]),
        kept=share([s[:, HEAD] | s[:, DEPENDENT] for s in selections]),
    )

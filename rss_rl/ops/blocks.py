"""Block length for block self-attention.

Source: Shen et al., Bi-directional Block Self-Attention (ICLR 2018), appendix A.
"""

from __future__ import annotations

import math


def expected_longest(mean: float, spread: float, batch: int) -> float:
    """Upper bound on the expected longest of `batch` lengths from N(mean, spread^2).

    E[longest] <= mean + spread sqrt(2 ln batch).

    Args:
        mean, spread: of the lengths, in tokens. batch: sentences, 1 or more.

    >>> expected_longest(14.0, 0.0, 64), expected_longest(14.0, 6.0, 1)
    (14.0, 14.0)
    >>> round(expected_longest(14.0, 6.0, 64), 2)
    31.3
    """
    return mean + spread * math.sqrt(2 * math.log(batch))


def block_length(mean: float, spread: float = 0.0, batch: int = 1) -> int:
    """Block length r, in tokens, that needs the least memory; rounded, at least 1.

    Attention within n / r blocks and between them takes n r + (n / r)^2, least at r = (2 n)^(1/3).
    n is the expected longest of a batch, or `mean` if all sentences have one length.

    Args:
        mean, spread: of the lengths, in tokens. batch: sentences, 1 or more.

    >>> [block_length(n) for n in (0, 1, 32, 500)]
    [1, 1, 4, 10]
    >>> block_length(14.0, 6.0, 64)
    4
    """
    return max(1, round(math.cbrt(2 * expected_longest(mean, spread, batch))))

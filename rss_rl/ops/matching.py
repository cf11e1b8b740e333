"""Parameter-free features of how the tokens of one sequence match another.

Legend: B pairs of sequences, N tokens of the first, M of the other, E embedding size.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from rss_rl.ops.masking import masked_mean

MATCH_SIZE = 2
"""Features of `best_matches` for a token."""

_PAIRS_AT_A_TIME = 1 << 22


class Sequences(NamedTuple):
    """tokens int64 [B, N], ids; vectors [B, N, E] of them; keep bool [B, N], True = real token."""

    tokens: Tensor
    vectors: Tensor
    keep: Tensor


def best_matches(of: Sequences, other: Sequences) -> Tensor:
    """Similarity of each token to the nearest real token of the other sequence.

    m_i = max_j x_i . y_j / (|x_i| |y_j|), 0 for a vector of zeros; e_i = 1 if the other contains
    the id of token i, else 0.

    Returns:
        [m; e], [B, N, 2]; 0 on padding and where the other has no real token. In the precision of
        the vectors, regardless of autocast: samplers and learners must read the same.
    """
    longest = of.tokens.shape[1]
    if not other.tokens.shape[1]:
        return of.vectors.new_zeros(*of.tokens.shape, MATCH_SIZE)
    step = max(1, _PAIRS_AT_A_TIME // max(1, other.tokens.numel()))
    pieces = [_matches(of, other, start, start + step) for start in range(0, max(1, longest), step)]
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces, 1)


def _matches(of: Sequences, other: Sequences, start: int, end: int) -> Tensor:
    """`best_matches` of the tokens from `start` to `end`, [B, n, 2]."""
    tokens, vectors, keep = (part[:, start:end] for part in of)
    with torch.autocast(vectors.device.type, enabled=False):
        theirs = F.normalize(other.vectors, dim=-1)
        cosines = F.normalize(vectors, dim=-1) @ theirs.transpose(1, 2)  # [B, n, M]
    pairs = keep[..., None] & other.keep[:, None]  # [B, n, M]
    nearest = torch.where(pairs, cosines, float("-inf")).amax(-1)
    known = torch.where(pairs.any(-1), nearest, 0.0)
    same = ((tokens[..., None] == other.tokens[:, None]) & pairs).any(-1)
    return torch.stack([known, same.to(known.dtype)], -1)


def cross_features(of: Sequences, other: Sequences) -> Tensor:
    """Each token with features of the other sequence: [x_i; x_i * q; q; m_i; e_i].

    q is the mean vector of the other's real tokens, 0 if it has none; m and e are those of
    `best_matches`.

    Returns:
        [B, N, 3 E + 2]; 0 on padding.
    """
    matches = best_matches(of, other)
    keep = of.keep[..., None]
    vectors = of.vectors * keep
    mean = masked_mean(other.vectors, other.keep)[:, None]  # [B, 1, E]
    return torch.cat([vectors, vectors * mean, mean * keep, matches], -1)

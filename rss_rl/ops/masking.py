"""Masked reductions and the gathering of kept tokens.

Legend: M sequences, N tokens, L kept tokens of the fullest sequence, D features.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Gathered:
    """Kept tokens moved to the front of each sequence, in order.

    index  int64 [M, L]  position of each kept token; 0 where there is none
    kept   bool [M, L]   True = a kept token
    """

    index: Tensor
    kept: Tensor


def _check(values: Tensor, keep: Tensor) -> None:
    if keep.dtype != torch.bool or values.shape[: keep.ndim] != keep.shape:
        raise ValueError(
            f"keep must be a boolean prefix of the values' shape {tuple(values.shape)},"
            f" got {keep.dtype} {tuple(keep.shape)}"
        )


def kept_indices(keep: Tensor) -> Gathered:
    """Positions of the kept tokens of each sequence, packed to the front, order unchanged.

    L is the largest number of kept tokens of a sequence.

    Args:
        keep: bool [M, N].
    """
    if keep.ndim != 2 or keep.dtype != torch.bool:
        raise ValueError(f"keep must be bool [M, N], got {keep.dtype} {tuple(keep.shape)}")
    counts = keep.sum(1)  # [M]
    longest = int(counts.max()) if len(counts) else 0
    order = torch.argsort((~keep).to(torch.uint8), dim=1, stable=True)[:, :longest]  # [M, L]
    kept = torch.arange(longest, device=keep.device) < counts[:, None]  # [M, L]
    return Gathered(torch.where(kept, order, 0), kept)


def gather(values: Tensor, index: Tensor) -> Tensor:
    """Rows `index` [M, L] of `values` [M, N, ...], giving [M, L, ...]."""
    sequences, tokens = values.shape[:2]
    # Selects whole rows: `torch.gather` would need an index for each feature.
    first = torch.arange(sequences, device=index.device)[:, None] * tokens
    rows = values.reshape(sequences * tokens, *values.shape[2:])
    taken = rows.index_select(0, (first + index).reshape(-1))
    return taken.reshape(*index.shape, *values.shape[2:])


def masked_softmax(logits: Tensor, keep: Tensor) -> Tensor:
    """Softmax over dimension 1 among kept tokens; 0 elsewhere and where none is kept.

    Args:
        logits: [M, N, D]; the softmax is taken for each feature on its own.
        keep: bool [M, N].
    """
    _check(logits, keep)
    kept = keep[..., None]
    # A row of -inf would give NaN, in the gradient even if the output is replaced.
    filler = torch.where(keep.any(1), float("-inf"), 0.0).to(logits.dtype)[:, None, None]
    return torch.softmax(torch.where(kept, logits, filler), 1) * kept


def masked_mean(values: Tensor, keep: Tensor) -> Tensor:
    """Mean over dimension 1 of the kept rows of `values` [M, N, D]; zeros where none is kept."""
    _check(values, keep)
    total = (values * keep[..., None]).sum(1)
    return total / keep.sum(1, keepdim=True).clamp_min(1)


def causal_means(values: Tensor, keep: Tensor, *, forward: bool) -> Tensor:
    """Mean of the kept rows strictly before (forward) or after (backward) each token.

    s_j = mean{values_i : i < j, keep_i} (forward) or i > j (backward); zeros where there is none.

    Args:
        values: [M, N, D].
        keep: bool [M, N].

    Returns:
        [M, N, D].
    """
    _check(values, keep)
    weights = keep.to(values.dtype)
    kept = values * weights[..., None]
    sums, counts = kept.cumsum(1), weights.cumsum(1)
    if forward:
        sums, counts = sums - kept, counts - weights
    else:
        sums, counts = sums[:, -1:] - sums, counts[:, -1:] - counts
    # A difference of cumulative sums leaves rounding errors where nothing is kept.
    return torch.where((counts > 0)[..., None], sums / counts.clamp_min(1.0)[..., None], 0.0)

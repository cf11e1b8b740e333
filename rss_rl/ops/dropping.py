"""Dropout in one pass on the CPU; masks are hashes of a position's key.

Legend: R positions, D features of each.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rss_rl.ops.operators import dropout

LEVELS = 1 << 16
"""Values of the 16-bit uniform number that decides on an element; a hash yields four."""


class Drop(NamedTuple):
    """Which elements of [R, D] are dropped.

    keys     int64 [R] in any shape
    dropped  at how many of the LEVELS an element is set to 0
    """

    keys: Tensor
    dropped: int

    @property
    def scale(self) -> float:
        """Factor of the kept elements."""
        return LEVELS / (LEVELS - self.dropped)

    def applied(self, values: Tensor, out: Tensor | None = None) -> Tensor:
        """Dropout of values [R, D] or of their gradient: kept elements are scaled up, others 0.

        Args:
            values: on the CPU; float64, float32, or bfloat16 with a float32 `out`.
            out: contiguous; for a result of another type: float32 to bfloat16 or back.

        Raises:
            ValueError: tensors of another shape or type, or a number of keys other than R.
        """
        given = values.contiguous()
        result = torch.empty_like(given) if out is None else out
        if result.shape != values.shape or not result.is_contiguous():
            raise ValueError(
                f"dropout of {tuple(values.shape)} needs a contiguous `out` of that shape,"
                f" not {tuple(result.shape)}"
            )
        flat, keys = given.flatten(0, -2), self.keys.contiguous().flatten()
        dropout(flat, keys, self.dropped - LEVELS // 2, self.scale, result.view(flat.shape))
        return result

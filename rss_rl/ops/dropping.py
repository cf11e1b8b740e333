"""Dropout in one pass on a CPU, with masks that are hashes of a position's key.

Legend: R positions, D features of each.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rss_rl.ops.operators import dropout

LEVELS = 1 << 16
"""Of the uniform number that decides on an element: one of 16 bits, of which a hash gives four."""


class Drop(NamedTuple):
    """Which elements of [R, D] are dropped.

    keys     int64 [R] in any shape
    dropped  levels, of LEVELS, at which an element is set to 0
    """

    keys: Tensor
    dropped: int

    @property
    def scale(self) -> float:
        """Of what is not dropped."""
        return LEVELS / (LEVELS - self.dropped)

    def applied(self, values: Tensor, out: Tensor | None = None) -> Tensor:
        """The values [R, D] that are kept, scaled up, and zeros; a gradient's likewise.

        Args:
            values: on a CPU; float64, float32, or bfloat16 to be made float32.
            out: contiguous, for the result if it is of another type: bfloat16 of float32.

        Raises:
            ValueError: tensors of another shape or type, or a number of keys other than R.
        """
        given = values.contiguous()
        result = torch.empty_like(given) if out is None else out
        if result.shape != values.shape or not result.is_contiguous():
            raise ValueError(
                f"what is left of {tuple(values.shape)} goes to a contiguous tensor of that shape,"
                f" not {tuple(result.shape)}"
            )
        flat, keys = given.flatten(0, -2), self.keys.contiguous().flatten()
        dropout(flat, keys, self.dropped - LEVELS // 2, self.scale, result.view(flat.shape))
        return result

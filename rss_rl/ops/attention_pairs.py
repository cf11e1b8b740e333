"""Which heads may attend to which dependents, from positions: O(M n) numbers, not O(M n²).

Legend: M sequences, J heads, I dependents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from rss_rl.ops.masking import Gathered
from rss_rl.ops.packing import Packed

Order = Literal["before", "after"]
"""A head attends to dependents strictly before it, or strictly after it."""


@dataclass(frozen=True)
class Pairs:
    """The allowed pairs of gathered heads and dependents: both kept, in the given order.

    heads       positions [M, J], ascending among the kept ones
    dependents  positions [M, I], the same
    """

    heads: Gathered
    dependents: Gathered
    order: Order

    @property
    def shape(self) -> tuple[int, int, int]:
        """(M, J, I)."""
        return (*self.heads.kept.shape, self.dependents.kept.shape[1])

    def mask(self, sequences: slice, heads: slice) -> Tensor:
        """Bool [m, j, I] of some sequences and heads, True = allowed."""
        chosen = Gathered(self.heads.index[sequences, heads], self.heads.kept[sequences, heads])
        seen = Gathered(self.dependents.index[sequences], self.dependents.kept[sequences])
        return allowed_pairs(chosen, seen, self.order)


@dataclass(frozen=True)
class PackedPairs:
    """`Pairs` of packed heads and dependents."""

    heads: Packed
    dependents: Packed
    order: Order

    def padded(self) -> Pairs:
        """The same pairs, of padded sequences."""
        return Pairs(self.heads.gathered(), self.dependents.gathered(), self.order)


def allowed_pairs(heads: Gathered, dependents: Gathered, order: Order) -> Tensor:
    """Which dependents a head may attend to: kept ones before it, or after it.

    Args:
        heads: positions [M, J]. dependents: positions [M, I].

    Returns:
        bool [M, J, I].
    """
    position_j, position_i = heads.index[:, :, None], dependents.index[:, None, :]
    ordered = position_i < position_j if order == "before" else position_i > position_j
    return ordered & heads.kept[:, :, None] & dependents.kept[:, None, :]

"""Tokens grouped by marks: the sentences of a passage, the candidates of a question.

Legend: M examples, N tokens, R groups of all examples together, L kept tokens of the fullest group,
C groups of the example with the most, D features. A mark of -1 means no group.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rss_rl.ops.ragged import ranks


@dataclass(frozen=True)
class Grouped:
    """The kept tokens of each group, moved to the front of a row of their own.

    example  int64 [R]      example of the group
    number   int64 [R]      the group's number in its example
    index    int64 [R, L]   of each kept token, its cell of the examples' M * N; 0 where none is
    kept     bool [R, L]    True = a kept token
    """

    example: Tensor
    number: Tensor
    index: Tensor
    kept: Tensor


def group_counts(marks: Tensor) -> Tensor:
    """Groups of each example, int64 [M]: its largest mark plus one, at least 1."""
    if marks.dtype != torch.int64 or marks.ndim != 2:
        raise ValueError(f"marks must be int64 [M, N], got {marks.dtype} {tuple(marks.shape)}")
    if not marks.shape[1]:
        return marks.new_ones(len(marks))
    return (marks.amax(1) + 1).clamp_min(1)


def present_groups(counts: Tensor) -> Tensor:
    """Which groups an example has, bool [M, C], C at least 1."""
    most = max(1, int(counts.max())) if len(counts) else 1
    return torch.arange(most, device=counts.device) < counts[:, None]


def regroup(keep: Tensor, marks: Tensor, counts: Tensor) -> Grouped:
    """A row for each group of each example, with its kept tokens in their order.

    A group without kept tokens still has a row, an empty one.

    Args:
        keep: bool [M, N]. marks: int64 [M, N], below `counts`. counts: int64 [M].
    """
    if keep.dtype != torch.bool or keep.shape != marks.shape or len(counts) != len(marks):
        raise ValueError(
            f"keep {keep.dtype} {tuple(keep.shape)}, marks {tuple(marks.shape)} and"
            f" {len(counts)} counts do not fit"
        )
    device, starts = marks.device, counts.cumsum(0) - counts
    example = torch.repeat_interleave(torch.arange(len(counts), device=device), counts)  # [R]
    number = ranks(counts, len(example))
    rows, columns = (keep & (marks >= 0)).nonzero(as_tuple=True)  # of T tokens
    group = starts[rows] + marks[rows, columns]
    order = torch.argsort(group, stable=True)
    group, position = group[order], (rows * marks.shape[1] + columns)[order]
    sizes = torch.bincount(group, minlength=len(example))  # [R]
    rank = ranks(sizes, len(group))
    longest = int(sizes.max()) if len(sizes) else 0
    index = marks.new_zeros(len(example), longest).index_put((group, rank), position)
    return Grouped(example, number, index, torch.arange(longest, device=device) < sizes[:, None])


def padded_groups(values: Tensor, grouped: Grouped, present: Tensor) -> Tensor:
    """A vector of each group, [R, D], as [M, C, D]; zeros for the groups that are not `present`."""
    base = values.new_zeros(*present.shape, values.shape[-1])
    return base.index_put((grouped.example, grouped.number), values)


def first_positions(marks: Tensor, present: Tensor) -> Tensor:
    """Position of each group's first token, int64 [M, C]; 0 for groups without tokens."""
    groups, tokens = present.shape[1], marks.shape[1]
    positions = torch.arange(tokens, device=marks.device).expand_as(marks)
    column = torch.where(marks < 0, groups, marks)
    first = marks.new_full((len(marks), groups + 1), tokens)
    first = first.scatter_reduce(1, column, positions, "amin")[:, :groups]
    return torch.where(first < tokens, first, 0)


def group_sums(values: Tensor, marks: Tensor, present: Tensor) -> Tensor:
    """Sum of `values` [M, N] over the tokens of each group, [M, C]."""
    groups = present.shape[1]
    column = torch.where(marks < 0, groups, marks)
    return values.new_zeros(len(marks), groups + 1).scatter_add(1, column, values)[:, :groups]

"""Tokens by mark against loops: rows of their own, first places, sums; what belongs to none."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rss_rl.ops.ragged import (
    group_counts,
    group_sums,
    padded_groups,
    present_groups,
    regroup,
)

SHAPES = st.tuples(st.integers(0, 4), st.integers(0, 7), st.integers(0, 10**6))


def draw(shape: tuple[int, int, int]) -> tuple[Tensor, Tensor]:
    """Marks [M, N] from -1 to 3 in any order, and which tokens stay."""
    examples, tokens, seed = shape
    generator = np.random.default_rng(seed)
    marks = generator.integers(-1, 4, (examples, tokens))
    return torch.from_numpy(marks), torch.from_numpy(generator.random(marks.shape) < 0.7)


@given(shape=SHAPES)
def test_regrouped_tokens_are_those_of_the_group_in_their_order(
    shape: tuple[int, int, int],
) -> None:
    marks, keep = draw(shape)
    counts = group_counts(marks)
    grouped = regroup(keep, marks, counts)
    wanted = [
        (m, g, [m * shape[1] + n for n in range(shape[1]) if keep[m, n] and marks[m, n] == g])
        for m in range(shape[0])
        for g in range(max([1, *(int(k) + 1 for k in marks[m])]))
    ]
    found = [
        (int(m), int(g), index[kept].tolist())
        for m, g, index, kept in zip(
            grouped.example, grouped.number, grouped.index, grouped.kept, strict=True
        )
    ]
    assert found == wanted
    assert grouped.kept.shape[1] == max([0, *(len(tokens) for _, _, tokens in wanted)])
    # In front, and nothing read from where there is no token.
    assert torch.equal(grouped.kept, grouped.kept.sort(stable=True, dim=1, descending=True)[0])
    assert not grouped.index[~grouped.kept].any()


@given(shape=SHAPES)
def test_sums_and_padding(shape: tuple[int, int, int]) -> None:
    marks, keep = draw(shape)
    counts = group_counts(marks)
    present = present_groups(counts)
    values = torch.from_numpy(np.random.default_rng(shape[2]).normal(size=tuple(marks.shape)))
    sums = group_sums(values, marks, present)
    grouped = regroup(keep, marks, counts)
    labelled = torch.stack([grouped.example, grouped.number], 1).double() + 1
    padded = padded_groups(labelled, grouped, present)
    assert present.shape[1] == max([1, *counts.tolist()])
    for m in range(shape[0]):
        for g in range(present.shape[1]):
            places = [n for n in range(shape[1]) if marks[m, n] == g]
            assert float(sums[m, g]) == pytest.approx(sum(float(values[m, n]) for n in places))
            assert padded[m, g].tolist() == ([m + 1, g + 1] if g < counts[m] else [0, 0])
            assert bool(present[m, g]) is (g < int(counts[m]))

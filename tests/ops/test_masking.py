"""Masked reductions and gathering against loops over the kept tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import twins
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rss_rl.ops.masking import (
    causal_means,
    kept_indices,
    masked_mean,
    masked_softmax,
)

MASKS = st.tuples(st.integers(1, 4), st.integers(0, 6)).flatmap(
    lambda shape: st.lists(
        st.lists(st.booleans(), min_size=shape[1], max_size=shape[1]),
        min_size=shape[0],
        max_size=shape[0],
    )
)
"""Masks [M, N] with empty rows, full rows and empty sentences among them."""


def values_for(keep: Tensor, size: int = 3, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*keep.shape, size, generator=generator, dtype=torch.float64)


def mask(rows: list[list[bool]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.bool).reshape(len(rows), -1)


@given(MASKS)
def test_kept_indices_pack_kept_positions_in_order(rows: list[list[bool]]) -> None:
    packed = kept_indices(mask(rows))
    wanted = [[n for n, keep in enumerate(row) if keep] for row in rows]
    assert packed.index.shape == (len(rows), max(map(len, wanted)))
    for row, index, kept in zip(wanted, packed.index.tolist(), packed.kept.tolist(), strict=True):
        padding = len(index) - len(row)
        assert index == row + [0] * padding
        assert kept == [True] * len(row) + [False] * padding


@given(MASKS, st.sampled_from([1.0, 1e3, 1e-3]))
def test_masked_softmax_equals_the_formula(rows: list[list[bool]], spread: float) -> None:
    keep = mask(rows)
    logits = spread * values_for(keep)
    weights = masked_softmax(logits, keep).numpy()
    wanted = np.zeros(logits.shape)
    for m, row in enumerate(rows):
        shown = [n for n, kept in enumerate(row) if kept]
        for place, n in enumerate(shown):
            unit = np.zeros((len(shown), 3))
            unit[place] = 1  # the weight of a token is what a 1 in its place gives
            wanted[m, n] = twins.mixture(list(logits[m, shown].numpy()), list(unit), 3)
    np.testing.assert_allclose(weights, wanted, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("extreme", [1e30, -1e30])
def test_masked_softmax_ignores_hidden_logits_of_any_size(extreme: float) -> None:
    keep = mask([[True, False, True], [False, False, False]])
    logits = values_for(keep)
    before = masked_softmax(logits, keep)
    hidden = torch.where(keep[..., None], logits, extreme)
    assert torch.equal(masked_softmax(hidden, keep), before)


@given(MASKS)
def test_masked_mean_is_the_mean_of_the_kept(rows: list[list[bool]]) -> None:
    keep = mask(rows)
    values = values_for(keep)
    result = masked_mean(values, keep)
    for m, row in enumerate(rows):
        wanted = values[m, row].mean(0) if any(row) else torch.zeros(3, dtype=torch.float64)
        torch.testing.assert_close(result[m], wanted, rtol=1e-12, atol=1e-14)


@given(MASKS, st.booleans())
def test_causal_means_are_means_of_kept_tokens_on_one_side(
    rows: list[list[bool]], forward: bool
) -> None:
    keep = mask(rows)
    values = values_for(keep)
    result = causal_means(values, keep, forward=forward)
    for m, row in enumerate(rows):
        for j in range(len(row)):
            side = [values[m, i] for i in range(len(row)) if row[i] and twins.before(i, j, forward)]
            wanted = torch.stack(side).mean(0) if side else torch.zeros(3, dtype=torch.float64)
            torch.testing.assert_close(result[m, j], wanted, rtol=1e-10, atol=1e-12)

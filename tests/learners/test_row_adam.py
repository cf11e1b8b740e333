"""Adam by row beside a slow twin, and what a row's path depends on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from rss_rl.learners.row_optimizers import RowAdam

V, E = 9, 3
RATE, BETAS, EPS = 0.1, (0.8, 0.95), 1e-3

Update = dict[int, list[float]]
"""Rows with a gradient and their gradients."""


def updates_of(seed: int, count: int) -> list[Update]:
    draw = np.random.default_rng(seed)
    return [
        {int(row): draw.normal(size=E).tolist() for row in draw.permutation(V)[: draw.integers(5)]}
        for _ in range(count)
    ]


def twin(start: np.ndarray, updates: list[Update]) -> np.ndarray:
    """Each row by itself, in the notation of Kingma and Ba."""
    theta = start.copy()
    for row in range(V):
        m, v, t = np.zeros(E), np.zeros(E), 0
        for update in updates:
            if row not in update:
                continue
            g = np.array(update[row])
            t += 1
            m = BETAS[0] * m + (1 - BETAS[0]) * g
            v = BETAS[1] * v + (1 - BETAS[1]) * g**2
            theta[row] -= (
                RATE * (m / (1 - BETAS[0] ** t)) / (np.sqrt(v / (1 - BETAS[1] ** t)) + EPS)
            )
    return theta


def gradient_of(update: Update, *, sparse: bool, zero_row: int | None = None) -> Tensor:
    dense = torch.zeros(V, E, dtype=torch.float64)
    for row, values in update.items():
        dense[row] = torch.tensor(values, dtype=torch.float64)
    if not sparse:
        return dense
    rows = torch.tensor(sorted(set(update) | ({zero_row} - {None})), dtype=torch.int64)
    return torch.sparse_coo_tensor(
        rows[None], dense[rows], dense.shape, is_coalesced=True, check_invariants=True
    )


def table_and_adam(start: np.ndarray) -> tuple[nn.Parameter, RowAdam]:
    table = nn.Parameter(torch.from_numpy(start.copy()))
    group = {"params": [table], "rows": True}
    return table, RowAdam([group], lr=RATE, betas=BETAS, eps=EPS, fused=True)


def learn(start: np.ndarray, updates: list[Update], *, sparse: bool) -> np.ndarray:
    table, adam = table_and_adam(start)
    for number, update in enumerate(updates):
        table.grad = gradient_of(update, sparse=sparse, zero_row=number % V)
        adam.step()
    return table.detach().numpy()


START = np.random.default_rng(1).normal(size=(V, E))


@pytest.mark.parametrize("sparse", [True, False])
def test_each_row_is_adam_over_the_updates_that_touch_it(sparse: bool) -> None:
    updates = updates_of(0, 30)
    found = learn(START, updates, sparse=sparse)
    np.testing.assert_allclose(found, twin(START, updates), rtol=1e-12, atol=1e-12)
    assert (found != START).all()


@given(seed=st.integers(0, 1000), row=st.integers(0, V - 1))
def test_a_rows_path_depends_on_the_batches_that_touch_it_alone(seed: int, row: int) -> None:
    updates = updates_of(seed, 12)
    touching = [update for update in updates if row in update]
    alone = [{row: update[row]} for update in touching]
    whole = learn(START, updates, sparse=True)[row]
    for others in (touching, alone):
        np.testing.assert_array_equal(learn(START, others, sparse=True)[row], whole)
    assert (whole == START[row]).all() == (not touching)


def test_dense_and_sparse_gradients_are_one_to_the_bit() -> None:
    updates = updates_of(3, 20)
    dense, sparse = (learn(START, updates, sparse=sparse) for sparse in (False, True))
    np.testing.assert_array_equal(dense, sparse)


def test_other_parameters_are_torchs_to_the_bit_and_gradients_stay() -> None:
    table, weight = (nn.Parameter(torch.from_numpy(START.copy())) for _ in range(2))
    other = nn.Parameter(torch.from_numpy(START.copy()))
    adam = RowAdam([{"params": [weight]}, {"params": [table], "rows": True}], lr=RATE, fused=True)
    torchs = torch.optim.Adam([other], lr=RATE, fused=True)
    for number, update in enumerate(updates_of(5, 6)):
        weight.grad = torch.full((V, E), number - 2.5, dtype=torch.float64)
        other.grad = weight.grad.clone()
        table.grad = gradient_of(update, sparse=True)
        adam.step()
        torchs.step()
        assert table.grad is not None
        assert table.grad.is_sparse
    assert torch.equal(weight, other)


def test_what_rows_have_no_use_for_is_refused() -> None:
    table, adam = table_and_adam(START)
    with pytest.raises(ValueError, match="closures are not"):
        adam.step(lambda: 0.0)
    table.grad = torch.ones(V, E, dtype=torch.float64)
    adam.param_groups[0]["weight_decay"] = 0.1
    with pytest.raises(ValueError, match="without L2"):
        adam.step()

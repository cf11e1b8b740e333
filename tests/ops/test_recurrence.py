"""The recurrence of simple recurrent units against a loop, and its gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rss_rl.models.encoders.recurrent import gated_average

both_ways = pytest.mark.parametrize("forward", [True, False])


def inputs(*shape: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, dtype=torch.float64, generator=generator)
    forget = torch.rand(shape, dtype=torch.float64, generator=generator)
    return values.requires_grad_(), forget.requires_grad_()


@both_ways
@given(
    shape=st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(0, 3)),
    seed=st.integers(0, 10**6),
)
def test_it_is_the_loop(forward: bool, shape: tuple[int, int, int], seed: int) -> None:
    values, forget = inputs(*shape, seed=seed)
    x, f = values.detach().numpy(), forget.detach().numpy()
    wanted, c = np.zeros(shape), np.zeros((shape[0], shape[2]))
    for t in range(shape[1]) if forward else reversed(range(shape[1])):
        c = f[:, t] * c + (1 - f[:, t]) * x[:, t]
        wanted[:, t] = c
    result = gated_average(values, forget, forward=forward).detach().numpy()
    np.testing.assert_allclose(result, wanted, rtol=1e-12, atol=1e-14)


@both_ways
@pytest.mark.parametrize("tokens", [1, 2, 5])
def test_gradient(forward: bool, tokens: int) -> None:
    values, forget = inputs(2, tokens, 3)
    assert torch.autograd.gradcheck(
        lambda x, f: gated_average(x, f, forward=forward), (values, forget)
    )


@both_ways
def test_the_gates_at_their_limits(forward: bool) -> None:
    values, _ = inputs(2, 4, 3)
    nothing, everything = torch.zeros_like(values), torch.ones_like(values)
    assert torch.equal(gated_average(values, nothing, forward=forward), values)
    assert not gated_average(values, everything, forward=forward).any()

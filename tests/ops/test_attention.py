"""Feature-wise attention against the formula with its full n x n mask."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import twins
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rss_rl.ops import attention
from rss_rl.ops import attention as module
from rss_rl.ops.attention import feature_wise_attention
from rss_rl.ops.masking import kept_indices
from rss_rl.ops.packing import allowed_pairs

C = 5.0


def draw(
    m: int, j: int, i: int, d: int, *, seed: int = 0, spread: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Head scores, dependent scores and values, float64."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return spread * normal(m, j, d), spread * normal(m, i, d), normal(m, i, d)


def random_mask(m: int, j: int, i: int, share: float, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).random((m, j, i)) < share)


def expected(heads: Tensor, dependents: Tensor, values: Tensor, allowed: Tensor) -> np.ndarray:
    rows = zip(heads, dependents, values, allowed, strict=True)
    return np.stack([twins.attention(*(t.numpy() for t in (u, v, h, a)), C) for v, u, h, a in rows])


@given(
    m=st.integers(1, 3),
    j=st.integers(1, 4),
    i=st.integers(1, 4),
    d=st.integers(1, 3),
    share=st.sampled_from([0.0, 0.3, 0.7, 1.0]),
    seed=st.integers(0, 10**6),
)
def test_equals_the_formula(m: int, j: int, i: int, d: int, share: float, seed: int) -> None:
    heads, dependents, values = draw(m, j, i, d, seed=seed)
    allowed = random_mask(m, j, i, share, seed)
    result = feature_wise_attention(heads, dependents, values, allowed, C)
    np.testing.assert_allclose(
        result.numpy(), expected(heads, dependents, values, allowed), rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize("spread", [1e-6, 30.0, 1e4])
def test_equals_the_formula_where_tanh_is_linear_or_saturated(spread: float) -> None:
    heads, dependents, values = draw(2, 4, 5, 3, spread=spread)
    allowed = random_mask(2, 4, 5, 0.6)
    result = feature_wise_attention(heads, dependents, values, allowed, C)
    np.testing.assert_allclose(
        result.numpy(), expected(heads, dependents, values, allowed), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("heads", [2 * 3, 2, 1], ids=["two sequences", "two heads", "a head"])
def test_many_blocks_give_what_one_block_gives(monkeypatch: pytest.MonkeyPatch, heads: int) -> None:
    inputs = [t.requires_grad_() for t in draw(7, 3, 4, 2)]
    allowed = random_mask(7, 3, 4, 0.6)
    whole = feature_wise_attention(*inputs, allowed, C)
    gradients = torch.autograd.grad(whole.square().sum(), inputs)
    block = heads * 4 * 2
    sizes: list[int] = []

    def weights(u: Tensor, v: Tensor, allowed: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        q, flow = whole_weights(u, v, allowed, scale)
        sizes.append(q.numel())
        return q, flow

    whole_weights = module._weights
    monkeypatch.setattr(module, "_weights", weights)
    monkeypatch.setattr(attention, "_ELEMENTS", block)
    cut = feature_wise_attention(*inputs, allowed, C)
    torch.testing.assert_close(cut, whole, rtol=0, atol=1e-14)
    for one, other in zip(torch.autograd.grad(cut.square().sum(), inputs), gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-13)
    assert max(sizes) == block
    assert sum(sizes) == 2 * 7 * 3 * 4 * 2  # each pair once forward and once backward


def test_head_without_dependents_gets_zero_and_finite_gradients() -> None:
    inputs = [t.requires_grad_() for t in draw(2, 3, 4, 2, spread=20.0)]
    allowed = torch.ones(2, 3, 4, dtype=torch.bool)
    allowed[0, 1] = False
    allowed[1] = False
    result = feature_wise_attention(*inputs, allowed, C)
    assert torch.equal(result[0, 1], torch.zeros(2, dtype=torch.float64))
    assert torch.equal(result[1], torch.zeros(3, 2, dtype=torch.float64))
    assert (result[0, 0] != 0).all()
    gradients = torch.autograd.grad(result.sum(), inputs)
    assert all(torch.isfinite(g).all() for g in gradients)
    assert all((g[1] == 0).all() for g in gradients)  # nothing was looked at there


def test_disallowed_dependents_have_no_influence() -> None:
    heads, dependents, values = draw(2, 3, 4, 2)
    allowed = random_mask(2, 3, 4, 0.5)
    allowed[:, :, 2] = False
    before = feature_wise_attention(heads, dependents, values, allowed, C)
    dependents[:, 2], values[:, 2] = 9.0, -7.0
    assert torch.equal(feature_wise_attention(heads, dependents, values, allowed, C), before)
    values[:, 1] += 1.0
    assert not torch.equal(feature_wise_attention(heads, dependents, values, allowed, C), before)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("spread", [1.0, 6.0])
def test_gradcheck(share: float, spread: float) -> None:
    inputs = [t.requires_grad_() for t in draw(2, 3, 4, 2, spread=spread)]
    allowed = random_mask(2, 3, 4, share)
    assert torch.autograd.gradcheck(
        lambda *given: feature_wise_attention(*given, allowed, C), inputs, eps=1e-6, atol=1e-7
    )


@given(
    bits=st.integers(1, 6).flatmap(
        lambda n: st.lists(
            st.tuples(*[st.tuples(st.booleans(), st.booleans())] * n), min_size=1, max_size=3
        )
    ),
    forward=st.booleans(),
)
def test_allowed_pairs_are_the_mask_of_the_paper(bits: list, forward: bool) -> None:
    roles = torch.tensor(bits)  # [M, N, 2]
    heads, dependents = kept_indices(roles[..., 0]), kept_indices(roles[..., 1])
    allowed = allowed_pairs(heads, dependents, "before" if forward else "after")
    found = {
        (m, int(heads.index[m, j]), int(dependents.index[m, i]))
        for m, j, i in allowed.nonzero().tolist()
    }
    wanted = {
        (m, j, i)
        for m, row in enumerate(bits)
        for j, (head, _) in enumerate(row)
        for i, (_, dependent) in enumerate(row)
        if head and dependent and twins.before(i, j, forward)
    }
    assert found == wanted
    assert int(allowed.sum()) == len(wanted)  # no pair stands there twice

"""Attention on a grid of scores against the exact one, to the error it promises."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from gridded import ORDERS, C, Case, draw, pairs, planned
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rss_rl.ops import temporaries
from rss_rl.ops.attention import feature_wise_attention
from rss_rl.ops.chunk_rows import Order
from rss_rl.ops.grid_scan import Plan
from rss_rl.ops.linear_attention import linear_attention, make_plan
from rss_rl.ops.masking import Gathered


def excesses(case: Case, order: Order, plan: Plan, error: float) -> list[float]:
    """Differences from the exact result and gradients, over what is promised for each."""
    inputs, heads, dependents = case
    result = linear_attention(*inputs, heads, dependents, order, C, plan)
    flow = torch.randn(result.shape, generator=torch.Generator().manual_seed(1)).to(result)
    found = [result, *torch.autograd.grad(result, inputs, flow)]
    twins = [t.detach().double().requires_grad_() for t in inputs]
    allowed = pairs(heads, dependents, order)
    exact = feature_wise_attention(*twins, allowed, C)
    wanted = [exact, *torch.autograd.grad(exact, twins, flow.double())]
    shown = dependents.kept[..., None]
    largest = (inputs[2].detach().abs() * shown).amax(1, keepdim=True).double()  # [M, 1, D]
    pull = torch.zeros_like(twins[1])  # sum_j P_ji |g_j|, the gradient of sum |g| s by h
    if exact.numel():
        outcome = feature_wise_attention(*twins, allowed, C)
        pull = torch.autograd.grad(outcome, twins[2], flow.abs().double())[0]
    promised = [
        error * largest,
        4 * error * largest * flow.abs(),
        4 * error * largest * pull,
        4 * error * pull,
    ]
    dust = 1e-7 if inputs[0].dtype == torch.float32 else 1e-13  # of sums that are nearly 0
    return [
        float(((a.detach() - b.detach()).abs() / (bound + dust)).max()) if a.numel() else 0.0
        for a, b, bound in zip(found, wanted, promised, strict=True)
    ]


@settings(max_examples=40)
@given(
    m=st.integers(1, 3),
    n=st.integers(1, 40),
    d=st.integers(1, 3),
    shares=st.tuples(st.sampled_from([0.0, 0.2, 1.0]), st.sampled_from([0.0, 0.3, 1.0])),
    spread=st.sampled_from([1e-3, 0.5, 2.0, 4.0]),
    error=st.sampled_from([0.1, 1e-2, 1e-4, 1e-5]),
    order=st.sampled_from(ORDERS),
    chunk=st.integers(1, 17),
    double=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_errors_are_within_the_promise(
    m: int,
    n: int,
    d: int,
    shares: tuple[float, float],
    spread: float,
    error: float,
    order: Order,
    chunk: int,
    double: bool,
    seed: int,
) -> None:
    dtype = torch.float64 if double else torch.float32
    case = draw(m, n, d, shares=shares, spread=spread, seed=seed, dtype=dtype)
    if make_plan(case[0][1], case[2], C, error) is None:
        return  # nothing is promised: no dependents, or too wide a range
    assert max(excesses(case, order, planned(case, error, chunk), error)) <= 1


@pytest.mark.parametrize("order", ORDERS)
def test_chunks_as_planned_for_a_longer_text(order: Order) -> None:
    case = draw(2, 150, 3, spread=1.5, dtype=torch.float32)
    plan = planned(case, 1e-3)
    assert plan.chunk < 60
    assert max(excesses(case, order, plan, 1e-3)) <= 1


def all_near_the_least(dtype: torch.dtype) -> Case:
    """Weights near exp(-c) for all that early heads see; the last dependents widen the range."""
    (v, u, h), heads, dependents = draw(1, 80, 2, shares=(1.0, 1.0), spread=0.1, dtype=dtype)
    steps = torch.linspace(-1, 1, 80, dtype=dtype)[:, None]
    u = torch.where(steps < 0.9, u - 7.0, u + 7.0).detach().requires_grad_()
    return [(v - 2.0).detach().requires_grad_(), u, h], heads, dependents


def test_weights_near_the_least_need_and_get_double_precision() -> None:
    case = all_near_the_least(torch.float32)
    plan = planned(case, 1e-5, chunk=16)
    assert plan.dtype == torch.float64
    assert max(excesses(case, "before", plan, 1e-5)) <= 1
    # So it is not for nothing: sums in single precision break the promise here.
    single = replace(plan, dtype=torch.float32)
    assert max(excesses(case, "before", single, 1e-5)) > 1
    loose = planned(case, 0.1, chunk=16)
    assert max(excesses(case, "before", loose, 0.1)) <= 1


def test_narrow_ranges_and_loose_errors_get_single_precision() -> None:
    case = draw(1, 60, 2, dtype=torch.float32)
    assert planned(case, 1e-2).dtype == torch.float32
    assert planned(case, 1e-5).dtype == torch.float64
    assert planned(draw(1, 60, 2), 1e-2).dtype == torch.float64


@pytest.mark.parametrize("order", ORDERS)
def test_gradients_are_those_of_the_approximation(order: Order) -> None:
    case = draw(1, 9, 2, spread=1.0)
    plan = replace(planned(case, 0.1), chunk=2, nodes=4)  # far from exact
    assert max(excesses(case, order, plan, 1e-3)) > 1
    inputs, heads, dependents = case
    assert torch.autograd.gradcheck(
        lambda *given: linear_attention(*given, heads, dependents, order, C, plan),
        inputs,
        eps=1e-6,
        atol=1e-7,
    )


def test_scores_of_any_size_where_the_dependents_are_close() -> None:
    (v, u, h), heads, dependents = draw(2, 40, 3, dtype=torch.float32)
    for offset, spread in [(1e4, 1.0), (0.0, 3e3), (-1e4, 30.0)]:
        moved = [(spread * v - offset).detach().requires_grad_(), (u + offset).detach(), h]
        moved[1].requires_grad_()
        case = moved, heads, dependents
        assert max(excesses(case, "before", planned(case, 1e-3, chunk=8), 1e-3)) <= 1


def test_no_plan_where_no_bound_can_be_kept() -> None:
    (_, u, _), _, dependents = draw(1, 30, 2, dtype=torch.float32)
    assert make_plan(u, dependents, C, 1e-3) is not None
    assert make_plan(100 * u, dependents, C, 1e-3) is None  # too wide a range
    assert make_plan(u, dependents, C, 1e-8) is None  # below rounding
    assert make_plan(u * float("nan"), dependents, C, 1e-3) is None
    assert (
        make_plan(u[:, :0], Gathered(dependents.index[:, :0], dependents.kept[:, :0]), C, 0.1)
        is None
    )
    for error in (0.0, 1.0, -1e-3, float("nan")):
        with pytest.raises(ValueError, match="between 0 and 1"):
            make_plan(u, dependents, C, error)


def test_cells_without_a_dependent_have_no_influence() -> None:
    (v, u, h), heads, dependents = draw(3, 30, 2, shares=(0.5, 0.3))
    missing = ~dependents.kept[..., None]
    assert missing.any()
    plan = planned(([v, u, h], heads, dependents), 1e-3, chunk=4)
    before = [linear_attention(v, u, h, heads, dependents, order, C, plan) for order in ORDERS]
    wild = u.detach().masked_fill(missing, 1e9), h.detach().masked_fill(missing, -7.0)
    assert torch.equal(planned(([v, *wild], heads, dependents), 1e-3).half, plan.half)
    for order, wanted in zip(ORDERS, before, strict=True):
        assert torch.equal(linear_attention(v, *wild, heads, dependents, order, C, plan), wanted)


def test_heads_that_see_nothing_get_zero_and_finite_gradients() -> None:
    (v, u, h), _, _ = case = draw(2, 6, 2, shares=(1.0, 1.0))
    keep = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0]], dtype=torch.bool)
    dependents = replace(case[2], kept=keep)
    plan = planned((case[0], case[1], dependents), 1e-3, chunk=2)
    result = linear_attention(v, u, h, case[1], dependents, "before", C, plan)
    assert (result[0, 0] == 0).all()
    assert (result[0, 1:] != 0).all()
    assert (result[1] == 0).all()
    gradients = torch.autograd.grad(result.sum(), (v, u, h))
    assert all(torch.isfinite(g).all() and (g[1] == 0).all() for g in gradients)


@pytest.mark.parametrize("elements", [1, 400])
def test_small_blocks_give_what_one_block_gives(
    monkeypatch: pytest.MonkeyPatch, elements: int
) -> None:
    inputs, heads, dependents = case = draw(2, 40, 2)
    plan = planned(case, 1e-3, chunk=8)

    def outcome() -> list[Tensor]:
        result = linear_attention(*inputs, heads, dependents, "others", C, plan)
        return [result, *torch.autograd.grad(result.square().sum(), inputs)]

    whole = outcome()
    monkeypatch.setattr(temporaries, "_ELEMENTS", elements)
    for one, other in zip(outcome(), whole, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "break_one",
    [
        lambda v, u, h, at: (v, u[:, :-1], h, *at),
        lambda v, u, h, at: (v[:, :-1], u, h, *at),
        lambda v, u, h, at: (v[..., :-1], u, h, *at),
        lambda v, u, h, at: (v[:1], u, h, *at),
        lambda v, u, h, at: (v, u[:, :-1], h[:, :-1], *at),
    ],
)
def test_shapes_that_do_not_fit_are_refused(break_one: object) -> None:
    inputs, heads, dependents = case = draw(2, 9, 2)
    plan = planned(case, 1e-2)
    with pytest.raises(ValueError, match="do not fit"):
        linear_attention(*break_one(*inputs, (heads, dependents)), "before", C, plan)  # type: ignore[operator]


def test_no_heads_give_no_context() -> None:
    inputs, heads, dependents = case = draw(2, 9, 2, shares=(0.0, 1.0))
    result = linear_attention(*inputs, heads, dependents, "others", C, planned(case, 1e-2))
    assert result.shape == (2, 0, 2)
    gradients = torch.autograd.grad(result.sum(), inputs)
    assert all((g == 0).all() for g in gradients)

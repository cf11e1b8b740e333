"""Corrections for stale selections against slow twins, by inputs that cross every clip."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import twins
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rss_rl.ops import bernoulli
from rss_rl.ops.importance import (
    Correction,
    clipped_token,
    ratio_sums,
    truncated_sum,
    truncated_token,
)
from rss_rl.ops.losses import policy_gradient_loss

FORMS: dict[str, tuple[Correction, float]] = {
    "truncated-sum": (truncated_sum, 2.0),
    "truncated-token": (truncated_token, 1.3),
    "clipped-token": (clipped_token, 0.2),
}
every_form = pytest.mark.parametrize("form", FORMS)


def draw(k: int, b: int, n: int, seed: int = 0, spread: float = 0.5) -> tuple[Tensor, ...]:
    """Log-probs of bits, those of the behaviour policy (both 0 on padding), advantages."""
    random = np.random.default_rng(seed)
    valid = np.arange(n) < random.integers(1, n + 1, b)[:, None]
    log_p = np.log(random.uniform(0.05, 0.95, (k, b, 2, n)))
    behaviour = np.minimum(log_p + spread * random.normal(size=log_p.shape), -1e-3)
    shown = np.broadcast_to(valid[:, None], log_p.shape)
    return tuple(
        torch.from_numpy(np.ascontiguousarray(a))
        for a in (log_p * shown, behaviour * shown, random.normal(size=(k, b)))
    )


def given_to(form: str, behaviour: Tensor) -> Tensor:
    """What the form reads of the behaviour policy."""
    return behaviour.sum((-1, -2)) if form == "truncated-sum" else behaviour


@every_form
@given(k=st.integers(1, 3), b=st.integers(1, 3), n=st.integers(1, 5), seed=st.integers(0, 10**6))
def test_loss_and_gradient_equal_the_twins(form: str, k: int, b: int, n: int, seed: int) -> None:
    function, limit = FORMS[form]
    log_p, behaviour, advantages = draw(k, b, n, seed)
    log_p.requires_grad_()
    result = function(log_p, given_to(form, behaviour), advantages, limit)
    loss, gradient = twins.importance_loss(
        form, log_p.detach().numpy(), behaviour.numpy(), advantages.numpy(), limit
    )
    np.testing.assert_allclose(result.loss.detach(), loss, rtol=1e-9, atol=1e-12)
    (mine,) = torch.autograd.grad(result.loss.sum(), log_p)
    shown = log_p.detach().numpy() != 0  # on padding the log-prob is a constant
    np.testing.assert_allclose(mine.numpy() * shown, gradient * shown, rtol=1e-9, atol=1e-12)
    # The weight is what the score function of a bit carries.
    weight = result.weight if result.weight.ndim == 4 else result.weight[..., None, None]
    wanted = -(advantages[..., None, None] * weight).expand_as(mine).numpy()
    np.testing.assert_allclose(mine.numpy() * shown, wanted * shown, rtol=1e-9, atol=1e-12)


@every_form
def test_the_inputs_cross_every_clip(form: str) -> None:
    function, limit = FORMS[form]
    log_p, behaviour, advantages = draw(4, 6, 5)
    result = function(log_p, given_to(form, behaviour), advantages, limit)
    counted, clipped = result.counted, result.clipped
    assert 0.05 < float(clipped[counted].double().mean()) < 0.95
    if form == "clipped-token":
        ratio, a = result.ratio, advantages[..., None, None].expand_as(result.ratio)
        for outside, sign, binds in (
            (ratio > 1 + limit, a > 0, True),
            (ratio > 1 + limit, a < 0, False),
            (ratio < 1 - limit, a < 0, True),
            (ratio < 1 - limit, a > 0, False),
        ):
            here = outside & sign & counted
            assert int(here.sum()) > 3
            assert bool((clipped[here] == binds).all())
            assert bool((result.weight[here] == 0).all()) is binds


@every_form
@given(spread=st.sampled_from([0.01, 0.1, 1.0, 30.0]), seed=st.integers(0, 10**6))
def test_zero_lag_gives_exactly_the_on_policy_gradient(form: str, spread: float, seed: int) -> None:
    function, limit = FORMS[form]
    random = np.random.default_rng(seed)
    logits = torch.from_numpy(spread * random.normal(size=(3, 2, 4))).float().requires_grad_()
    valid = torch.from_numpy(np.arange(4) < np.array([4, 1, 0])[:, None])
    bits = torch.from_numpy(random.random((2, 3, 2, 4)) < 0.5)
    advantages = torch.from_numpy(random.normal(size=(2, 3))).float()
    log_p = bernoulli.log_prob(logits, bits, valid)
    weighted = function(log_p, given_to(form, log_p.detach()), advantages, limit)
    plain = policy_gradient_loss(log_p, advantages)
    (mine,) = torch.autograd.grad(weighted.loss.mean(), logits, retain_graph=True)
    (wanted,) = torch.autograd.grad(plain.mean(), logits)
    assert torch.equal(mine, wanted)
    assert not weighted.clipped.any()
    assert bool((weighted.ratio == 1).all())


@every_form
def test_gradcheck(form: str) -> None:
    function, limit = FORMS[form]
    log_p, behaviour, advantages = draw(2, 3, 3)
    log_p[log_p == 0] = -0.4  # a difference quotient would turn padding into a bit
    if form == "clipped-token":
        assert torch.autograd.gradcheck(
            lambda x: function(x, behaviour, advantages, limit).loss, [log_p.requires_grad_()]
        )
    else:  # the weight is a constant to the gradient: differentiate a copy that holds it fixed
        fixed = function(log_p, given_to(form, behaviour), advantages, limit).weight
        weight = fixed if fixed.ndim == 4 else fixed[..., None, None]
        log_p.requires_grad_()
        loss = function(log_p, given_to(form, behaviour), advantages, limit).loss.sum()
        (mine,) = torch.autograd.grad(loss, log_p)
        other = -(advantages * (weight * log_p).sum((-1, -2))).sum()
        torch.testing.assert_close(mine, torch.autograd.grad(other, log_p)[0])
        assert torch.autograd.gradcheck(lambda x: -advantages * (weight * x).sum((-1, -2)), [log_p])


@every_form
def test_no_gradient_reaches_behaviour_or_advantages(form: str) -> None:
    function, limit = FORMS[form]
    log_p, behaviour, advantages = draw(2, 3, 3)
    log_p.requires_grad_()
    advantages.requires_grad_()
    result = function(log_p, given_to(form, behaviour), advantages, limit)
    assert torch.autograd.grad(result.loss.sum(), advantages, allow_unused=True)[0] is None
    assert not any(part.requires_grad for part in result[1:])


@every_form
def test_certain_bits_and_impossible_ones_stay_finite(form: str) -> None:
    function, limit = FORMS[form]
    log_p = torch.tensor([[[[-200.0, -1e-8, 0.0]]]]).requires_grad_()
    behaviour = torch.tensor([[[[-1e-8, -300.0, 0.0]]]])
    for advantage in (2.0, -2.0):
        result = function(log_p, given_to(form, behaviour), torch.tensor([[advantage]]), limit)
        assert all(torch.isfinite(part).all() for part in result)
        assert torch.isfinite(torch.autograd.grad(result.loss.sum(), log_p)[0]).all()
        assert torch.isfinite(ratio_sums(result)).all()


@every_form
def test_ratio_sums_are_those_of_what_counts_and_add_up(form: str) -> None:
    function, limit = FORMS[form]
    log_p, behaviour, advantages = draw(2, 5, 4)
    whole = function(log_p, given_to(form, behaviour), advantages, limit)
    r, w = whole.ratio[whole.counted].numpy(), whole.weight[whole.counted].numpy()
    clipped = whole.clipped[whole.counted].sum().item()
    wanted = [len(r), r.sum(), clipped, w.sum(), (w**2).sum(), r.max()]
    result = ratio_sums(whole).numpy()
    np.testing.assert_allclose(result, wanted)
    if form != "truncated-sum":
        assert len(r) == int((log_p != 0).sum()) < log_p.numel()  # padding does not count
    parts = [
        ratio_sums(
            function(log_p[:, cut], given_to(form, behaviour[:, cut]), advantages[:, cut], limit)
        ).numpy()
        for cut in (slice(0, 2), slice(2, 5), slice(5, 5))
    ]
    np.testing.assert_allclose(np.sum(parts, 0)[:5], result[:5])
    assert np.max(parts, 0)[5] == result[5]


@every_form
def test_shapes_that_do_not_fit_are_refused(form: str) -> None:
    function, limit = FORMS[form]
    log_p, behaviour, advantages = draw(2, 3, 3)
    wrong = behaviour if form == "truncated-sum" else behaviour.sum((-1, -2))
    with pytest.raises(ValueError, match="do not fit"):
        function(log_p, wrong, advantages, limit)
    with pytest.raises(ValueError, match="do not fit"):
        function(log_p, given_to(form, behaviour), advantages[:, :2], limit)

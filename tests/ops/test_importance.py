"""Corrections for stale selections against slow twins, by inputs that cross every clip."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

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
)
from rss_rl.ops.losses import policy_gradient_loss

FORMS: dict[str, tuple[Correction, float]] = {
    "truncated-sum": (truncated_sum, 2.0),
    "clipped-token": (clipped_token, 0.2),
}
every_form = pytest.mark.parametrize("form", FORMS)


class Given(NamedTuple):
    """Log-probs of bits and those of the behaviour policy, S x [K, B, 2, N_s]; [K, B, S]."""

    log_p: list[Tensor]
    behaviour: list[Tensor]
    advantages: Tensor

    def of(self, examples: slice) -> Given:
        cut = [[part[:, examples] for part in parts] for parts in self[:2]]
        return Given(*cut, self.advantages[:, examples])


def draw(
    k: int, b: int, sizes: Sequence[int] = (4, 6), seed: int = 0, spread: float = 0.5
) -> Given:
    """Of padding both log-probs are 0."""
    random = np.random.default_rng(seed)
    now, before = [], []
    for n in sizes:
        valid = np.arange(n) < random.integers(1, n + 1, b)[:, None]
        log_p = np.log(random.uniform(0.05, 0.95, (k, b, 2, n)))
        behaviour = np.minimum(log_p + spread * random.normal(size=log_p.shape), -1e-3)
        shown = np.broadcast_to(valid[:, None], log_p.shape)
        now.append(torch.from_numpy(log_p * shown).requires_grad_())
        before.append(torch.from_numpy(behaviour * shown))
    return Given(now, before, torch.from_numpy(random.normal(size=(k, b, len(sizes)))))


def seen(form: str, behaviour: Sequence[Tensor]) -> list[Tensor]:
    """What the form reads of the behaviour policy."""
    return [part.sum((-1, -2)) if form == "truncated-sum" else part for part in behaviour]


def arrays(parts: Sequence[Tensor]) -> list[np.ndarray]:
    return [part.detach().numpy() for part in parts]


@every_form
@given(
    k=st.integers(1, 3),
    b=st.integers(1, 3),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    seed=st.integers(0, 10**6),
)
def test_losses_and_gradients_equal_the_twins(
    form: str, k: int, b: int, sizes: list[int], seed: int
) -> None:
    function, limit = FORMS[form]
    log_p, behaviour, advantages = draw(k, b, sizes, seed)
    result = function(log_p, seen(form, behaviour), advantages, limit)
    losses, gradients = twins.importance_loss(
        form, arrays(log_p), arrays(behaviour), advantages.numpy(), limit
    )
    mine = torch.stack(result.losses, -1)
    np.testing.assert_allclose(mine.detach(), losses, rtol=1e-9, atol=1e-12)
    found = torch.autograd.grad(mine.sum(), log_p)
    weights = itertools.cycle(result.weight)  # one for all slots, or those of each
    for slot, (part, gradient, weight) in enumerate(zip(found, gradients, weights, strict=False)):
        shown = log_p[slot].detach().numpy() != 0  # on padding the log-prob is a constant
        np.testing.assert_allclose(part.numpy() * shown, gradient * shown, rtol=1e-9, atol=1e-12)
        # The weight is what the score function of a bit carries.
        by_bit = weight if weight.ndim == 4 else weight[..., None, None]
        wanted = -(advantages[..., slot, None, None] * by_bit).expand_as(part).numpy()
        np.testing.assert_allclose(part.numpy() * shown, wanted * shown, rtol=1e-9, atol=1e-12)


BEHAVIOUR = [np.array([0.5, 0.3]), np.array([0.6, 0.2])]
TARGET = [np.array([0.9, 0.4]), np.array([0.45, 0.7])]
"""Chances of the bits of two slots."""


def both_pay(z: Sequence[np.ndarray]) -> np.ndarray:
    """What both slots select pays each of them, less a cost of its own."""
    shared = z[0][0] * z[1][0] - 2 * z[0][1] * z[1][1] + z[1][1]
    return np.array([shared - 0.3 * z[0].sum(), shared - 0.3 * z[1].sum()])


def estimated(
    form: str,
    limit: float,
    behaviour: Sequence[np.ndarray],
    target: Sequence[np.ndarray],
    reward: Callable[[Sequence[np.ndarray]], np.ndarray] = both_pay,
) -> list[np.ndarray]:
    """The expectation of the form's gradient over all selections of the behaviour policy."""
    sizes = [len(part) for part in target]
    every = np.array(list(itertools.product((False, True), repeat=sum(sizes))))  # [K, bits]
    bits = [torch.from_numpy(z)[:, None, None] for z in np.split(every, np.cumsum(sizes)[:-1], 1)]
    paid = np.array([reward([b[k, 0, 0].numpy() for b in bits]) for k in range(len(every))])
    logits = [torch.from_numpy(np.log(p / (1 - p)))[None, None].requires_grad_() for p in target]
    theirs = [torch.from_numpy(np.log(p / (1 - p)))[None, None] for p in behaviour]
    log_p = [bernoulli.log_prob(*each) for each in zip(logits, bits, strict=True)]
    before = [bernoulli.log_prob(*each) for each in zip(theirs, bits, strict=True)]
    advantages = torch.from_numpy(paid)[:, None]  # [K, 1, S]
    result = FORMS[form][0](log_p, seen(form, before), advantages, limit)
    chance = torch.stack([part.sum((-1, -2)) for part in before]).sum(0).exp()  # [K, 1]
    loss = sum(((chance * part).sum() for part in result.losses), torch.zeros(()))
    return [-part.numpy()[0, 0] for part in torch.autograd.grad(loss, logits)]


def exact() -> list[np.ndarray]:
    """Of the target policy: its own selections, which nothing weighs."""
    return twins.expected_gradient(np.ones_like, TARGET, TARGET, both_pay)


def test_the_untruncated_product_over_all_slots_gives_the_target_policys_gradient() -> None:
    for mine, wanted in zip(
        estimated("truncated-sum", 1e9, BEHAVIOUR, TARGET), exact(), strict=True
    ):
        np.testing.assert_allclose(mine, wanted, rtol=1e-12)


@every_form
@given(spread=st.sampled_from([0.01, 0.1, 1.0, 30.0]), seed=st.integers(0, 10**6))
def test_zero_lag_gives_exactly_the_on_policy_gradient(form: str, spread: float, seed: int) -> None:
    function, limit = FORMS[form]
    random = np.random.default_rng(seed)
    advantages = torch.from_numpy(random.normal(size=(2, 3, 2))).float()
    logits, log_p, plain = [], [], []
    for slot, lengths in enumerate(([4, 1, 0], [2, 0, 3])):
        logits.append(
            torch.from_numpy(spread * random.normal(size=(3, 2, 4))).float().requires_grad_()
        )
        valid = torch.from_numpy(np.arange(4) < np.array(lengths)[:, None])
        bits = torch.from_numpy(random.random((2, 3, 2, 4)) < 0.5) & valid[:, None]
        log_p.append(bernoulli.log_prob(bernoulli.never_on_padding(logits[-1], valid), bits))
        plain.append(policy_gradient_loss(log_p[-1], advantages[..., slot]))
    behaviour = seen(form, [part.detach() for part in log_p])
    weighted = function(log_p, behaviour, advantages, limit)
    mine = torch.autograd.grad(torch.stack(weighted.losses).mean(), logits, retain_graph=True)
    wanted = torch.autograd.grad(torch.stack(plain).mean(), logits)
    assert all(torch.equal(a, b) for a, b in zip(mine, wanted, strict=True))
    assert not any(part.any() for part in weighted.clipped)
    assert all(bool((part == 1).all()) for part in weighted.ratio)


@every_form
def test_no_gradient_reaches_behaviour_or_advantages(form: str) -> None:
    function, limit = FORMS[form]
    log_p, behaviour, advantages = draw(2, 3)
    advantages.requires_grad_()
    result = function(log_p, seen(form, behaviour), advantages, limit)
    loss = torch.stack(result.losses).sum()
    assert torch.autograd.grad(loss, advantages, allow_unused=True)[0] is None
    assert not any(part.requires_grad for parts in result[1:] for part in parts)


@every_form
def test_certain_bits_and_impossible_ones_stay_finite(form: str) -> None:
    function, limit = FORMS[form]
    log_p = torch.tensor([[[[-200.0, -1e-8, 0.0]]]]).requires_grad_()
    behaviour = torch.tensor([[[[-1e-8, -300.0, 0.0]]]])
    for advantage in (2.0, -2.0):
        paid = torch.full((1, 1, 2), advantage)
        result = function([log_p, log_p], seen(form, [behaviour] * 2), paid, limit)
        assert all(torch.isfinite(part).all() for parts in result for part in parts)
        loss = torch.stack(result.losses).sum()
        assert torch.isfinite(torch.autograd.grad(loss, log_p)[0]).all()
        assert torch.isfinite(ratio_sums(result)).all()


@every_form
def test_ratio_sums_are_those_of_what_counts_and_add_up(form: str) -> None:
    function, limit = FORMS[form]
    given = draw(2, 5)
    whole = function(given.log_p, seen(form, given.behaviour), given.advantages, limit)
    r, w, clipped = (
        np.concatenate([p[c].numpy() for p, c in zip(parts, whole.counted, strict=True)])
        for parts in (whole.ratio, whole.weight, whole.clipped)
    )
    wanted = [len(r), r.sum(), clipped.sum(), w.sum(), (w**2).sum(), r.max()]
    result = ratio_sums(whole).numpy()
    np.testing.assert_allclose(result, wanted)
    if form == "truncated-sum":
        assert len(r) == given.advantages[..., 0].numel()  # one of each example
    else:
        bits = sum(int((part != 0).sum()) for part in given.log_p)
        assert len(r) == bits < sum(part.numel() for part in given.log_p)  # without padding
    parts = []
    for cut in (slice(0, 2), slice(2, 5), slice(5, 5)):
        log_p, behaviour, advantages = given.of(cut)
        parts.append(ratio_sums(function(log_p, seen(form, behaviour), advantages, limit)).numpy())
    np.testing.assert_allclose(np.sum(parts, 0)[:5], result[:5])
    assert np.max(parts, 0)[5] == result[5]

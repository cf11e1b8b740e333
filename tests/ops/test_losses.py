"""Losses of score tasks and of the policy: value, gradient by hand, gradcheck."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rss_rl.ops.losses import (
    expected_score,
    policy_gradient_loss,
    score_divergence,
    score_targets,
    soft_cross_entropy,
)


def paper_target(y: float) -> np.ndarray:
    """p_floor(y) = floor(y) - y + 1, p_floor(y)+1 = y - floor(y); five bins 1..5."""
    p = np.zeros(6)  # a place for k = 6, which y = 5 would fill with 0
    whole = math.floor(y)
    p[whole - 1] = whole - y + 1
    p[whole] = y - whole
    return p[:5]


def logits(m: int, c: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(2 * np.random.default_rng(seed).normal(size=(m, c)))


@given(st.floats(1, 5))
def test_targets_are_those_of_the_paper(y: float) -> None:
    result = score_targets(torch.tensor([y], dtype=torch.float64), 5, 1.0, 5.0)
    np.testing.assert_allclose(result[0].numpy(), paper_target(y), atol=1e-12)


@given(low=st.floats(-3, 3), span=st.floats(0.5, 9), place=st.floats(0, 1), bins=st.integers(2, 12))
def test_targets_are_distributions_whose_mean_is_the_score(
    low: float, span: float, place: float, bins: int
) -> None:
    score = low + place * span
    target = score_targets(torch.tensor([score], dtype=torch.float64), bins, low, low + span)
    assert float(target.sum()) == pytest.approx(1.0, abs=1e-9)
    assert float(target.min()) >= 0
    assert int((target > 1e-9).sum()) <= 2
    mean = (target[0].numpy() * np.linspace(low, low + span, bins)).sum()
    assert mean == pytest.approx(score, abs=1e-8)


def test_divergence_is_kl_from_the_target() -> None:
    given, scores = logits(5, 5), torch.tensor([1.0, 2.3, 3.0, 4.9, 5.0], dtype=torch.float64)
    result = score_divergence(given, scores, 1.0, 5.0).numpy()
    for row, y in enumerate(scores.tolist()):
        p = np.exp(given[row].numpy()) / np.exp(given[row].numpy()).sum()
        t = paper_target(y)
        kl = sum(t_k * math.log(t_k / p_k) for t_k, p_k in zip(t, p, strict=True) if t_k > 0)
        assert result[row] == pytest.approx(kl, abs=1e-12)


def test_expected_score() -> None:
    given = logits(4, 5)
    for row in range(4):
        weights = np.exp(given[row].numpy())
        score = sum(k * w for k, w in zip(range(1, 6), weights, strict=True)) / weights.sum()
        assert float(expected_score(given, 1.0, 5.0)[row]) == pytest.approx(score, abs=1e-12)


def test_gradcheck() -> None:
    scores = torch.tensor([1.0, 2.3, 3.0, 5.0], dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda x: score_divergence(x, scores, 1.0, 5.0),
        [logits(4, 5).requires_grad_()],
    )


def test_policy_gradient_loss_value_and_gradient() -> None:
    log_prob = logits(2, 3 * 2 * 4).reshape(2, 3, 2, 4).requires_grad_()
    advantages = logits(2, 3, seed=1).requires_grad_()
    loss = policy_gradient_loss(log_prob, advantages)
    for k, b in np.ndindex(2, 3):
        wanted = -advantages[k, b].item() * log_prob[k, b].sum().item()
        assert loss[k, b].item() == pytest.approx(wanted)
    by_log_prob, by_advantages = torch.autograd.grad(
        loss.mean(), [log_prob, advantages], allow_unused=True
    )
    wanted_gradient = -advantages.detach()[..., None, None].expand_as(log_prob) / 6
    torch.testing.assert_close(by_log_prob, wanted_gradient)
    assert by_advantages is None  # rewards are no function of the policy here
    with pytest.raises(ValueError, match="advantages"):
        policy_gradient_loss(log_prob, advantages[:, :2])


def test_soft_cross_entropy_is_that_of_the_two_distributions() -> None:
    given, other = logits(4, 3), torch.softmax(logits(4, 3, seed=1), -1)
    result = soft_cross_entropy(given, other).numpy()
    for row in range(4):
        p = np.exp(given[row].numpy()) / np.exp(given[row].numpy()).sum()
        wanted = -sum(q * math.log(k) for q, k in zip(other[row].tolist(), p, strict=True))
        assert result[row] == pytest.approx(wanted, abs=1e-12)
    assert torch.autograd.gradcheck(
        lambda x: soft_cross_entropy(x, other), (given.requires_grad_(),)
    )


def test_soft_cross_entropy_passes_over_classes_that_neither_allows() -> None:
    given = torch.tensor([[0.5, -math.inf, 1.0]], dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([[0.25, 0.0, 0.75]], dtype=torch.float64)
    loss = soft_cross_entropy(given, targets)
    torch.testing.assert_close(loss, soft_cross_entropy(given[:, ::2], targets[:, ::2]))
    (gradient,) = torch.autograd.grad(loss.sum(), given)
    assert torch.isfinite(gradient).all()

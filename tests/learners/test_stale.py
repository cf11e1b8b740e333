"""Selections of an older policy: the learner's corrections, and when there are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import small
import torch
import twins
from torch import Tensor

from rss_rl.config import LearnerConfig, OptimizerConfig
from rss_rl.learners.policy_gradient import PolicyGradientLearner, PolicyStats, RewardBatch
from rss_rl.models.embedding import WordEmbedding
from rss_rl.models.inputs import TensorBatch
from rss_rl.policies.protocol import Policy

K, B = 3, 4
LIMITS = {"truncated-sum": 2.0, "truncated-token": 2.0, "clipped-token": 0.2}
every_correction = pytest.mark.parametrize("correction", LIMITS)


def batch() -> tuple[TensorBatch, list[Tensor], Tensor]:
    """Four pairs, K selections of each, S x [K, B, 2, N], and rewards [K, B, S]."""
    tokens, valid, _ = small.pairs((6, 2), (1, 7), (5, 5), (4, 3))
    drawn = [
        torch.stack([small.selection(v, 0.5, 10 * k + s) for k in range(K)])
        for s, v in enumerate(valid)
    ]
    rewards = torch.from_numpy(np.random.default_rng(2).normal(size=(K, B, 2)))
    return TensorBatch(tokens, valid, torch.zeros(B, dtype=torch.int64)), drawn, rewards


def bits(policy: Policy) -> list[Tensor]:
    """Log-probs of the batch's selections under a policy, S x [K, B, 2, N]."""
    tensors, drawn, _ = batch()
    embedded = [embedding()(tokens).detach() for tokens in tensors.tokens]
    with torch.no_grad():
        return [
            policy(e, v).evaluate(d).log_prob
            for e, v, d in zip(embedded, tensors.valid, drawn, strict=True)
        ]


def embedding() -> WordEmbedding:
    vectors = np.random.default_rng(5).normal(size=(small.WORDS, small.EMBEDDING))
    return WordEmbedding(vectors.astype(np.float32), small.TRAINABLE).double()


def update(
    behaviour: list[Tensor] | None, correction: str, **settings: Any
) -> tuple[PolicyStats, Tensor, Tensor]:
    """Statistics, gradient and weights of one update of the policy of seed 0."""
    policy = small.policy()
    config = LearnerConfig(policy=OptimizerConfig(clip_norm=None))
    if correction == "clipped-token":
        estimator = small.estimator("ppo-clip", baseline="none", **settings)
    else:
        estimator = small.estimator(correction=correction, baseline="none", **settings)
    tensors, drawn, rewards = batch()
    learner = PolicyGradientLearner(policy, embedding(), config, None, estimator=estimator)
    stats = learner.update(tensors, RewardBatch(drawn, rewards, None, behaviour), number=0)
    gradient = torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])
    weights = torch.cat([p.detach().flatten() for p in policy.parameters()])
    return stats, gradient, weights


def seen(log_prob: list[Tensor], correction: str) -> list[Tensor]:
    summed = correction == "truncated-sum"
    return [part.sum((-1, -2)) if summed else part for part in log_prob]


@every_correction
def test_without_behaviour_no_ratio_is_computed(correction: str) -> None:
    plain, gradient, weights = update(None, "none")
    other, its_gradient, its_weights = update(None, correction)
    assert other == plain
    assert other.ratios is None
    assert torch.equal(its_gradient, gradient)
    assert torch.equal(its_weights, weights)


@every_correction
def test_at_zero_lag_the_update_is_that_of_plain_reinforce(correction: str) -> None:
    _, gradient, weights = update(None, "none")
    stats, its_gradient, its_weights = update(seen(bits(small.policy()), correction), correction)
    assert torch.allclose(its_gradient, gradient, rtol=1e-12, atol=1e-15)
    assert torch.allclose(its_weights, weights, rtol=1e-12, atol=1e-15)
    assert stats.ratios == pytest.approx((1.0, 1.0, 0.0, 1.0))


@every_correction
def test_a_stale_update_is_the_twins_gradient(correction: str) -> None:
    older, now = bits(small.policy(seed=1)), bits(small.policy())
    stats, gradient, _ = update(seen(older, correction), correction)
    _, drawn, rewards = batch()
    policy, tensors = small.policy(), batch()[0]
    surrogate, limit = torch.zeros(()), LIMITS[correction]
    losses, by_bit = twins.importance_loss(
        correction,
        [part.numpy() for part in now],
        [part.numpy() for part in older],
        rewards.numpy(),
        limit,
    )
    for slot, weights in enumerate(by_bit):
        vectors = embedding()(tensors.tokens[slot]).detach()
        log_prob = policy(vectors, tensors.valid[slot]).evaluate(drawn[slot]).log_prob
        surrogate = surrogate + (torch.from_numpy(weights) * log_prob).sum() / (K * B)
    wanted = torch.autograd.grad(surrogate, list(policy.parameters()))
    torch.testing.assert_close(gradient, torch.cat([g.flatten() for g in wanted]))
    assert stats.loss == pytest.approx(losses.mean((0, 1)).sum())
    _, plain, _ = update(None, "none")
    assert float((gradient - plain).norm() / plain.norm()) > 0.05


@every_correction
def test_ratio_statistics_are_those_of_all_examples_or_bits(correction: str) -> None:
    older, now = bits(small.policy(seed=1)), bits(small.policy())
    ratios = update(seen(older, correction), correction)[0].ratios
    assert ratios is not None
    pairs = list(zip(now, older, strict=True))
    if correction == "truncated-sum":
        r = torch.stack([(p - q).sum((-1, -2)) for p, q in pairs]).sum(0).exp().flatten().numpy()
    else:
        r = np.concatenate([(p - q)[p != 0].exp() for p, q in pairs])
    assert ratios.mean == pytest.approx(r.mean())
    assert ratios.largest == pytest.approx(r.max())
    if correction == "clipped-token":
        assert 0 < ratios.clipped < 1
        assert 0 < ratios.effective_samples < 1
    else:
        w = np.minimum(r, 2.0)
        assert ratios.clipped == pytest.approx((r > 2.0).mean())
        assert ratios.effective_samples == pytest.approx(w.sum() ** 2 / (len(w) * (w**2).sum()))
        assert ratios.clipped > 0


def test_limits_come_from_the_configuration() -> None:
    older = bits(small.policy(seed=1))
    for correction, name, value in (
        ("truncated-sum", "ratio_max", 1.1),
        ("truncated-token", "ratio_max", 1.1),
        ("clipped-token", "ratio_clip", 0.05),
    ):
        wide = update(seen(older, correction), correction)[0].ratios
        narrow = update(seen(older, correction), correction, **{name: value})[0].ratios
        assert wide is not None
        assert narrow is not None
        assert narrow.clipped >= wide.clipped
        assert narrow.mean == wide.mean
        assert narrow.effective_samples != wide.effective_samples


def test_no_correction_ignores_the_behaviour_policy() -> None:
    older = seen(bits(small.policy(seed=1)), "none")
    assert update(older, "none")[0] == update(None, "none")[0]

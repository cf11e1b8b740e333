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
from rss_rl.models.embedding import WordEmbedding
from rss_rl.models.inputs import TensorBatch
from rss_rl.policies.policy import Policy

K, B = 3, 4
LIMITS = {"truncated-sum": 2.0, "clipped-token": 0.2}
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
    slots = zip(small.policy_inputs(embedding(), tensors), drawn, strict=True)
    with torch.no_grad():
        return [policy(inputs).evaluate(bits).log_prob for inputs, bits in slots]


def embedding() -> WordEmbedding:
    vectors = np.random.default_rng(5).normal(size=(small.WORDS, small.EMBEDDING))
    return WordEmbedding(vectors.astype(np.float32), small.TRAINABLE).double()


def update(
    behaviour: list[Tensor] | None, correction: str, **settings: Any
) -> tuple[dict[str, float], Tensor, Tensor]:
    """Statistics, gradient and weights of one update of the policy of seed 0."""
    policy = small.policy()
    config = LearnerConfig(policy=OptimizerConfig(clip_norm=None))
    name = "ppo-clip" if correction == "clipped-token" else "reinforce"
    tensors, drawn, rewards = batch()
    learner = small.policy_update(
        policy, embedding(), config, name=name, baseline="none", **settings
    )
    summed = behaviour and [part.sum((-1, -2)) for part in behaviour]
    paid = small.rewarded(drawn, rewards, None, summed, behaviour)
    stats = small.step(learner, tensors, paid)
    gradient = torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])
    weights = torch.cat([p.detach().flatten() for p in policy.parameters()])
    return stats, gradient, weights


RATIOS = (
    "policy/ratio_mean",
    "policy/ratio_max",
    "policy/ratio_clipped",
    "policy/effective_sample_share",
)


@every_correction
def test_without_behaviour_no_ratio_is_computed(correction: str) -> None:
    plain, gradient, weights = update(None, "truncated-sum")
    other, its_gradient, its_weights = update(None, correction)
    assert other == plain
    assert "policy/ratio_mean" not in other
    assert torch.equal(its_gradient, gradient)
    assert torch.equal(its_weights, weights)


@every_correction
def test_at_zero_lag_the_update_is_that_of_plain_reinforce(correction: str) -> None:
    _, gradient, weights = update(None, "truncated-sum")
    stats, its_gradient, its_weights = update(bits(small.policy()), correction)
    assert torch.allclose(its_gradient, gradient, rtol=1e-12, atol=1e-15)
    assert torch.allclose(its_weights, weights, rtol=1e-12, atol=1e-15)
    assert [stats[name] for name in RATIOS] == pytest.approx([1.0, 1.0, 0.0, 1.0])


@every_correction
def test_a_stale_update_is_the_twins_gradient(correction: str) -> None:
    older, now = bits(small.policy(seed=1)), bits(small.policy())
    stats, gradient, _ = update(older, correction)
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
        inputs = small.policy_inputs(embedding(), tensors)[slot]
        log_prob = policy(inputs).evaluate(drawn[slot]).log_prob
        surrogate = surrogate + (torch.from_numpy(weights) * log_prob).sum() / (K * B)
    wanted = torch.autograd.grad(surrogate, list(policy.parameters()))
    torch.testing.assert_close(gradient, torch.cat([g.flatten() for g in wanted]))
    assert stats["policy/loss"] == pytest.approx(losses.mean((0, 1)).sum())
    _, plain, _ = update(None, "truncated-sum")
    assert float((gradient - plain).norm() / plain.norm()) > 0.05


def test_limits_come_from_the_configuration() -> None:
    older = bits(small.policy(seed=1))
    for correction, name, value in (
        ("truncated-sum", "ratio_max", 1.1),
        ("clipped-token", "ratio_clip", 0.05),
    ):
        wide = update(older, correction)[0]
        narrow = update(older, correction, **{name: value})[0]
        assert narrow["policy/ratio_clipped"] >= wide["policy/ratio_clipped"]
        assert narrow["policy/ratio_mean"] == wide["policy/ratio_mean"]
        share = "policy/effective_sample_share"
        assert narrow[share] != wide[share]

"""Policies without parameters, and policies by name."""

from __future__ import annotations

import math

import pytest
import small
import torch

from rss_rl.policies.fixed import BernoulliOptions, BernoulliPolicy, SelectAllPolicy
from rss_rl.policies.policy import PolicySetup

VALID = torch.tensor([[True] * 4, [True, True, False, False]])
INPUTS = small.of_vectors(torch.zeros(2, 4, small.EMBEDDING), VALID)


def bernoulli(probability: float) -> BernoulliPolicy:
    setup = PolicySetup(small.EMBEDDING, "relu")
    return BernoulliPolicy(setup, BernoulliOptions(probability=probability))


def test_select_all_selects_every_real_token() -> None:
    policy = SelectAllPolicy()
    everything = VALID[:, None].expand(-1, 2, -1)
    sampled = policy(INPUTS).sample(torch.rand(3, 2, 2, 4))
    assert torch.equal(sampled.selection, everything.expand(3, -1, -1, -1))
    assert torch.equal(sampled.log_prob, torch.zeros(3, 2, 2, 4))
    assert torch.equal(policy(INPUTS).mode, everything)
    assert torch.equal(policy(INPUTS).probs, everything.float())


def test_select_all_finds_any_other_selection_impossible() -> None:
    everything = VALID[:, None].expand(-1, 2, -1).clone()
    one_less = everything.clone()
    one_less[1, 0, 1] = False
    evaluated = SelectAllPolicy()(INPUTS).evaluate(torch.stack([everything, one_less]))
    wanted = torch.zeros(2, 2, 2, 4)
    wanted[1, 1, 0, 1] = -math.inf
    assert torch.equal(evaluated.log_prob, wanted)
    assert evaluated.entropy.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_bernoulli_takes_each_token_with_one_chance(probability: float) -> None:
    policy = bernoulli(probability)
    wanted = probability * VALID[:, None].expand(-1, 2, -1)
    torch.testing.assert_close(policy(INPUTS).probs, wanted)
    draws = torch.rand(5000, 2, 2, 4, generator=torch.Generator().manual_seed(0))
    selection, log_prob = policy(INPUTS).sample(draws)
    shares = selection.float().mean(0)
    torch.testing.assert_close(shares, wanted, rtol=0, atol=5 * 0.5 / 5000**0.5)
    kept, bits = selection.sum((-1, -2)), torch.tensor([8, 4])
    by_hand = kept * math.log(probability) + (bits - kept) * math.log(1 - probability)
    torch.testing.assert_close(log_prob.sum((-1, -2)), by_hand)
    assert not log_prob[:, 1, :, 2:].any()
    entropy = policy(INPUTS).evaluate(selection).entropy
    h = -probability * math.log(probability) - (1 - probability) * math.log(1 - probability)
    torch.testing.assert_close(entropy, torch.full((2,), h))


def test_bernoulli_threshold_is_all_or_nothing() -> None:
    everything = VALID[:, None].expand(-1, 2, -1)
    assert torch.equal(bernoulli(0.7)(INPUTS).mode, everything)
    assert not bernoulli(0.4)(INPUTS).mode.any()

"""Baselines against their definitions, and the identities that tie them together."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rss_rl.ops.advantages import leave_one_out, moving_average, self_critical


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


@given(k=st.integers(2, 5), b=st.integers(1, 4), s=st.integers(1, 2), seed=st.integers(0, 10**6))
def test_leave_one_out_is_reward_minus_the_mean_of_the_others(
    k: int, b: int, s: int, seed: int
) -> None:
    rewards = draw(k, b, s, seed=seed).numpy()
    result = leave_one_out(torch.from_numpy(rewards)).numpy()
    for sample in range(k):
        others = np.delete(rewards, sample, axis=0).mean(0)
        np.testing.assert_allclose(result[sample], rewards[sample] - others, atol=1e-12)
    np.testing.assert_allclose(result.sum(0), 0, atol=1e-12)


@given(shift=st.floats(-10, 10))
def test_a_constant_added_to_the_rewards_changes_no_advantage(shift: float) -> None:
    rewards, base = draw(3, 4, 2), draw(4, 2, seed=1)
    torch.testing.assert_close(leave_one_out(rewards + shift), leave_one_out(rewards))
    torch.testing.assert_close(
        self_critical(rewards + shift, base + shift), self_critical(rewards, base)
    )
    average = draw(2, seed=2)
    torch.testing.assert_close(
        moving_average(rewards + shift, average + shift, 0.9)[0],
        moving_average(rewards, average, 0.9)[0],
    )


def test_self_critical_subtracts_the_reward_of_the_thresholded_selection() -> None:
    rewards, base = draw(3, 4, 2), draw(4, 2, seed=1)
    result = self_critical(rewards, base)
    for sample in range(3):
        assert torch.equal(result[sample], rewards[sample] - base)


def test_moving_average_step_by_step() -> None:
    average = torch.full((2,), float("nan"), dtype=torch.float64)
    beta = None
    for step in range(4):
        rewards = draw(3, 4, 2, seed=step)
        advantage, average = moving_average(rewards, average, 0.75)
        mean = rewards.numpy().mean((0, 1))
        before = mean if beta is None else beta
        np.testing.assert_allclose(advantage.numpy(), rewards.numpy() - before, atol=1e-12)
        beta = mean if beta is None else 0.75 * beta + 0.25 * mean
        np.testing.assert_allclose(average.numpy(), beta, atol=1e-12)

"""Baselines of the score-function estimator: advantage = reward - baseline.

Legend: K selections per example, B examples, S sentences.
"""

from __future__ import annotations

from torch import Tensor


def leave_one_out(rewards: Tensor) -> Tensor:
    """A_k = R_k - mean of the other K - 1 rewards of the same example (Kool et al. 2019).

    Args:
        rewards: [K, ...] with K >= 2.

    Returns:
        Same shape; sums to 0 over K.
    """
    samples = rewards.shape[0]
    return (rewards - rewards.mean(0, keepdim=True)) * (samples / (samples - 1))


def self_critical(rewards: Tensor, thresholded_rewards: Tensor) -> Tensor:
    """A_k = R_k - reward of the thresholded selection (Rennie et al. 2017).

    Args:
        rewards: [K, B, S]. thresholded_rewards: [B, S].
    """
    return rewards - thresholded_rewards


def moving_average(
    rewards: Tensor, average: Tensor, momentum: float, mean: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Advantages against a running mean of past rewards, and the updated mean (Williams 1992).

    A = R - beta, then beta <- m beta + (1 - m) mean(R); a NaN average (none yet) starts at mean(R).

    Args:
        rewards: [K, B, S]. average: [S]. momentum: m in [0, 1).
        mean: mean(R), [S], of the whole batch where `rewards` is a shard of it.
    """
    mean = rewards.mean((0, 1)) if mean is None else mean
    start = average.isnan()
    baseline = mean.where(start, average)
    updated = mean.where(start, momentum * average + (1 - momentum) * mean)
    return rewards - baseline, updated

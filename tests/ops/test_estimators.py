"""Estimators against the exact gradient by enumeration of 12 bits, and their algebra."""

from __future__ import annotations

import enumerated
import estimators as benchmark
import pytest
import torch

from rss_rl.ops.estimators import BitRewards, antithetic, arm, disarm, flip
from rss_rl.seeding import keyed_uniforms

BITS, REPEATS = 12, 20_000


def setting(spread: float) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(3)
    logits = spread * torch.randn(BITS, generator=draw, dtype=torch.float64)
    return logits, enumerated.rewards_of(BITS)


@pytest.mark.parametrize("spread", [0.5, 2.0])
@pytest.mark.parametrize("name", enumerated.ESTIMATORS)
def test_estimates_agree_with_the_exact_gradient(name: str, spread: float) -> None:
    logits, rewards = setting(spread)
    exact = enumerated.exact_gradient(logits, rewards)
    drawn = enumerated.estimates(name, logits, rewards, REPEATS)
    error = drawn.std(0) / REPEATS**0.5
    z = (drawn.mean(0) - exact) / error
    assert z.abs().max() < 4.5, z
    assert (exact.abs() > 8 * error).any(), "too noisy to tell from 0"


def test_the_gradient_by_enumeration_is_that_of_finite_differences() -> None:
    logits, rewards = setting(1.0)
    masks = enumerated.every_mask(BITS)

    def mean(phi: torch.Tensor) -> torch.Tensor:
        chance = torch.where(masks, phi, -phi).sigmoid().prod(-1)
        return (chance * rewards).sum()

    for i, slope in enumerate(enumerated.exact_gradient(logits, rewards)):
        step = torch.zeros(BITS, dtype=torch.float64)
        step[i] = 1e-5
        by_difference = (mean(logits + step) - mean(logits - step)) / 2e-5
        torch.testing.assert_close(slope, by_difference, rtol=1e-6, atol=1e-9)


def test_flip_is_exact_for_a_reward_that_adds_up() -> None:
    """Then the gain of a bit does not depend on the others, and one selection is enough."""
    logits = torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64)
    rewards = enumerated.every_mask(3).double() @ torch.tensor([1.0, -2.0, 0.5]).double()
    drawn = enumerated.estimates("flip", logits, rewards, 5)
    exact = enumerated.exact_gradient(logits, rewards)
    torch.testing.assert_close(drawn, exact.expand(5, 3))


def paid(k: int) -> BitRewards:
    draw = torch.Generator().manual_seed(k)
    logits = torch.randn(2, 2, 3, generator=draw, dtype=torch.float64)
    uniforms = antithetic(torch.rand(k, 2, 2, 3, generator=draw, dtype=torch.float64))
    selection = uniforms < torch.sigmoid(logits)
    rewards = torch.randn(k, 2, generator=draw, dtype=torch.float64)
    return BitRewards(logits, torch.ones(2, 3, dtype=torch.bool), uniforms, selection, rewards)


def test_equal_rewards_of_a_pair_give_no_gradient() -> None:
    case = paid(4)
    same = case._replace(rewards=torch.ones(4, 2, dtype=torch.float64))
    for estimate in (arm, disarm):
        assert not estimate(same).any()
        assert estimate(case).abs().max() > 0


def test_disarm_is_arm_averaged_over_what_gives_the_same_selections() -> None:
    """E[u - 1/2 | b, b~] by fine sampling of u in one dimension."""
    phi = torch.tensor(0.8, dtype=torch.float64)
    u = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000
    first, second = u < torch.sigmoid(phi), (1 - u) < torch.sigmoid(phi)
    for b, other in ((True, False), (False, True)):
        which = (first == b) & (second == other)
        wanted = (0.5 - u[which]).mean()
        case = BitRewards(
            phi.view(1, 1, 1),
            torch.ones(1, 1, dtype=torch.bool),
            torch.zeros(2, 1, 1, 1),
            torch.tensor([b, other]).view(2, 1, 1, 1),
            torch.tensor([[1.0], [0.0]], dtype=torch.float64),
        )
        torch.testing.assert_close(disarm(case).squeeze(), wanted, rtol=1e-4, atol=1e-6)
    both = (first == second).nonzero().squeeze()
    assert abs((0.5 - u[both]).mean()) < 1e-6


def test_mirrored_uniforms_are_exact_and_keyed_ones_stay_within_bounds() -> None:
    import numpy as np

    drawn = torch.from_numpy(keyed_uniforms(5, np.arange(50), 4, 2, 7))
    spread = antithetic(drawn)
    assert torch.equal(spread[2:] + spread[:2], torch.ones_like(drawn[:2]))
    assert spread.min() > 0
    assert spread.max() < 1
    with pytest.raises(ValueError, match="pairs"):
        antithetic(drawn[:3])


def test_flip_needs_paid_flips() -> None:
    with pytest.raises(ValueError, match="flipped"):
        flip(paid(2))


def test_the_benchmark_counts_what_is_paid() -> None:
    """Else a table of variance per reward evaluation would name the wrong estimator."""
    rows = {name: benchmark.measure(name, 1.0, 1, 2_000) for name in enumerated.ESTIMATORS}
    assert [rows[name]["evaluations"] for name in rows] == [1, 2, 4, 8, 2, 2, 4, BITS + 1]
    for row in rows.values():
        assert row["cost"] == row["variance"] * row["evaluations"]
        assert row["worst_z"] < 4.5
    assert rows["leave-one-out K=8"]["variance"] < rows["leave-one-out K=2"]["variance"]

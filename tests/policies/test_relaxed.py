"""Gumbel-sigmoid, HardKuma and top-k against their definitions in numpy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import small
import torch

from rss_rl.ops.relaxed import changes, expected_costs, kuma_gates, kuma_log_tail, straight_through
from rss_rl.policies.build import build_policy

LOW, HIGH = -0.1, 1.1


def uniforms(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).uniform(1e-6, 1 - 1e-6, shape))


def test_straight_through_is_hard_forward_and_soft_backward() -> None:
    logits = torch.tensor([[[0.5, -1.0, 2.0]]], dtype=torch.float64, requires_grad=True)
    valid = torch.tensor([[True, True, False]])
    drawn = uniforms(6, 1, 1, 3)
    gates = straight_through(logits, valid, drawn, 0.7)
    hard = (drawn < torch.sigmoid(logits)) & valid
    assert torch.equal(gates.detach(), hard.double())
    (slope,) = torch.autograd.grad(gates.sum(), logits)
    u, phi = drawn.numpy(), logits.detach().numpy()
    y = 1 / (1 + np.exp(-(phi - np.log(u / (1 - u))) / 0.7))
    wanted = (y * (1 - y) / 0.7).sum(0) * valid.numpy()
    np.testing.assert_allclose(slope.numpy(), wanted, rtol=1e-9)


@pytest.mark.parametrize(("a", "b"), [(0.7, 0.7), (0.2, 3.0), (4.0, 0.3)])
def test_kuma_gates_have_the_distribution_of_the_paper(a: float, b: float) -> None:
    u = (torch.arange(100_000, dtype=torch.float64) + 0.5) / 100_000
    first = torch.full((1, 1, 1), a, dtype=torch.float64)
    second = torch.full((1, 1, 1), b, dtype=torch.float64)
    gates = kuma_gates(first, second, u.view(-1, 1, 1, 1), LOW, HIGH).squeeze()
    for t in (0.0, 0.3, 0.8):
        below = 1 - (1 - ((t - LOW) / (HIGH - LOW)) ** a) ** b
        assert float((gates <= t).double().mean()) == pytest.approx(below, abs=2e-5)
    tail = kuma_log_tail(first, second, -LOW / (HIGH - LOW)).exp()
    assert float((gates > 0).double().mean()) == pytest.approx(float(tail), abs=2e-5)
    assert float((gates == 1).double().mean()) > 0


@pytest.mark.parametrize("probability", [0.3, 0.5, 0.9])
def test_hardkuma_starts_at_the_probability_asked_for(probability: float) -> None:
    policy = small.policy(name="hardkuma", initial_probability=probability)
    fresh = build_policy(
        small.policy_config(name="hardkuma", initial_probability=probability),
        small.EMBEDDING,
        "relu",
    )
    for module in fresh.modules_by_role:  # type: ignore[union-attr]
        torch.nn.init.zeros_(module.score.weight)
    embedded, valid = torch.zeros(1, 3, small.EMBEDDING), torch.ones(1, 3, dtype=torch.bool)
    neutral = fresh(small.of_vectors(embedded, valid)).probs.mean().item()
    assert neutral == pytest.approx(probability, 1e-4)
    assert policy(small.of_vectors(embedded.double(), valid)).probs.std() > 0


@pytest.mark.parametrize("product", [False, True])
def test_expected_cost_is_the_mean_over_all_selections(product: bool) -> None:
    """By enumeration, against the environment's own cost."""
    from rss_rl.config import RewardConfig
    from rss_rl.envs.rewards import cost_terms

    n = 3
    chance = torch.tensor([[[0.2, 0.9, 0.5], [0.6, 0.1, 0.7]]], dtype=torch.float64)
    valid = torch.ones(1, n, dtype=torch.bool)
    spec = RewardConfig(
        sparsity_cost=0.3, penalty="product" if product else "sum", coherence_cost=0.2
    )
    total = 0.0
    for bits in itertools.product([False, True], repeat=2 * n):
        mask = np.array(bits).reshape(1, 2, n)
        p = chance.numpy()
        likely = float(np.where(mask, p, 1 - p).prod())
        costs = cost_terms([mask], [valid.numpy()], spec)
        total += likely * float(sum(costs.values())[0, 0])
    costs = expected_costs(chance, valid, sparsity=0.3, product=product, coherence=0.2)
    assert float(sum(costs)) == pytest.approx(total, abs=1e-6)


def test_changes_stop_at_the_end_of_a_sentence() -> None:
    kept = torch.tensor([[[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]])
    assert changes(kept, torch.tensor([[True, True, True]])).item() == 2
    assert changes(kept, torch.tensor([[True, True, False]])).item() == 1


def test_top_k_keeps_exactly_its_budget() -> None:
    policy = small.policy(name="top-k", options={"share": 0.4}, shared=True)
    _, valid = small.sentences(7, 1, 5, 0, 2)
    inputs = small.of_vectors(torch.randn(5, 7, small.EMBEDDING, dtype=torch.float64), valid)
    wanted = torch.tensor([3, 1, 2, 0, 1])
    assert torch.equal(policy(inputs).mode.sum(-1)[:, 0], wanted)
    gates = policy(inputs).rsample(uniforms(50, 5, 2, 7))  # type: ignore[operator]
    assert torch.equal(gates.detach().sum(-1)[:, :, 1], wanted.double().expand(50, 5))


def test_top_k_draws_in_proportion_to_the_scores() -> None:
    """k = 1: the Gumbel maximum is a draw from the softmax."""
    policy = small.policy(name="top-k", options={"share": 0.1}, shared=True)
    valid = torch.ones(1, 4, dtype=torch.bool)
    generator = torch.Generator().manual_seed(0)
    embedded = torch.randn(1, 4, small.EMBEDDING, dtype=torch.float64, generator=generator)
    inputs = small.of_vectors(embedded, valid)
    scores = policy(inputs).scores  # type: ignore[attr-defined]
    drawn = policy(inputs).sample(uniforms(20_000, 1, 2, 4)).selection
    share = drawn[:, 0, 0].double().mean(0)
    torch.testing.assert_close(share, scores.softmax(-1)[0, 0].detach(), atol=0.02, rtol=0)

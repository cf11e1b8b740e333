"""The estimator against the exact gradient of the expected reward, by enumeration.

The loss is linear in the advantages, so the expectation of an update over all draws of a sentence
is one update on a batch of every possible draw, each reward weighted by the chance of its draw.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import small
import torch
from torch import Tensor

from rss_rl.config import LearnerConfig, OptimizerConfig
from rss_rl.learners.score_function import ScoreFunction
from rss_rl.learners.updates import RewardBatch
from rss_rl.models.embedding import WordEmbedding
from rss_rl.models.inputs import TensorBatch
from rss_rl.policies.policy import Policy

TOKENS = 4
SPARSITY = 0.3


def embedding() -> WordEmbedding:
    vectors = np.random.default_rng(5).normal(size=(small.WORDS, small.EMBEDDING))
    return WordEmbedding(vectors.astype(np.float32), small.TRAINABLE).double()


def every_selection(n: int) -> Tensor:
    """bool [4^n, 2, n]."""
    bits = list(itertools.product([False, True], repeat=2 * n))
    return torch.tensor(bits).reshape(-1, 2, n)


def table(*shape: int, seed: int = 3) -> Tensor:
    """An arbitrary reward for each selection: nothing smooth to help an estimator."""
    return torch.from_numpy(2 + np.random.default_rng(seed).normal(size=shape))


def sentence(n: int, copies: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    tokens, valid = small.sentences(n, seed=seed)
    return tokens.expand(copies, -1), valid.expand(copies, -1)


def learner(policy: Policy, baseline: str, entropy_cost: float = 0.0) -> ScoreFunction:
    config = LearnerConfig(entropy_cost=entropy_cost, policy=OptimizerConfig(clip_norm=None))
    made: ScoreFunction = small.policy_update(policy, embedding(), config, baseline=baseline)
    return made


def flat(gradients: Any) -> Tensor:
    return torch.cat([g.flatten() for g in gradients])


def estimate(
    policy: Policy, baseline: str, slots: list[tuple[Tensor, Tensor]], paid: RewardBatch,
    average: Tensor | None = None, entropy_cost: float = 0.0, weights: Tensor | None = None,
    **more: Any,
) -> tuple[Tensor, dict[str, float]]:  # fmt: skip
    """The ascent direction of one update; the policy is left as it was."""
    state = {name: value.clone() for name, value in policy.state_dict().items()}
    made = learner(policy, baseline, entropy_cost)
    if average is not None:
        made.average = average
    labels = torch.zeros(len(slots[0][0]), dtype=torch.int64)
    batch = TensorBatch([t for t, _ in slots], [v for _, v in slots], labels, weights=weights)
    stats = small.step(made, batch, paid, **more)
    policy.load_state_dict(state)
    return -flat([p.grad for p in policy.parameters()]), stats


def log_probs(policy: Policy, n: int, seed: int = 0) -> Tensor:
    """log p of every selection of one sentence, differentiable, [4^n]."""
    tokens, valid = sentence(n, 1, seed)
    inputs = small.of_vectors(embedding()(tokens).detach(), valid)
    return policy(inputs).evaluate(every_selection(n)[:, None]).log_prob.sum((-1, -2))[:, 0]


def exact_gradient(policy: Policy, rewards: Tensor) -> Tensor:
    """d/d theta of sum_z p(z) R(z)."""
    expected = (log_probs(policy, TOKENS).exp() * rewards).sum()
    return flat(torch.autograd.grad(expected, list(policy.parameters())))


def chances(policy: Policy, n: int, seed: int = 0) -> Tensor:
    return log_probs(policy, n, seed).exp().detach()


def single_draws(policy: Policy, adjusted: Tensor, thresholded: Tensor) -> RewardBatch:
    """Every selection once, K = 1: rewards [1, 4^n, 1]."""
    drawn = every_selection(TOKENS)[None]
    return small.rewarded([drawn], adjusted[None, :, None], thresholded[:, None])


@pytest.mark.parametrize("baseline", ["none", "self-critical", "moving-average"])
def test_one_draw_is_unbiased(baseline: str) -> None:
    policy = small.policy()
    rewards, chance = table(4**TOKENS), chances(policy, TOKENS)
    assert float(chance.sum()) == pytest.approx(1.0)
    base = 1.7
    weight = chance * len(chance)  # undoes the mean over the batch
    # A moving average does not scale with the rewards, so the weight goes around it.
    adjusted = (
        base + weight * (rewards - base) if baseline == "moving-average" else weight * rewards
    )
    paid = single_draws(policy, adjusted, weight * base)
    average = torch.tensor([base], dtype=torch.float64)
    result, _ = estimate(policy, baseline, [sentence(TOKENS, len(chance))], paid, average)
    wanted = exact_gradient(policy, rewards)
    torch.testing.assert_close(result, wanted, rtol=1e-8, atol=1e-10)
    assert wanted.abs().max() > 1e-3


def test_what_is_charged_is_what_the_reward_would_have_cost() -> None:
    policy = small.policy()
    shares = every_selection(TOKENS).double().mean(-1)  # [4^n, 2]
    drawn = every_selection(TOKENS)[:3, None].expand(-1, 2, -1, -1)  # K = 3, B = 2
    paid = small.rewarded([drawn], torch.zeros(3, 2, 1).double())
    result, _ = estimate(policy, "none", [sentence(TOKENS, 2)], paid, price=(0.7, -0.4))
    wanted = exact_gradient(policy, -0.7 * shares[:, 0] + 0.4 * shares[:, 1])
    torch.testing.assert_close(result, wanted, rtol=1e-8, atol=1e-10)
    assert wanted.abs().max() > 1e-3


@pytest.mark.parametrize("baseline", ["none", "self-critical", "leave-one-out"])
def test_an_example_of_weight_two_counts_as_if_it_came_twice(baseline: str) -> None:
    policy = small.policy()
    again = [0, 0, 1, 2]
    slots = [small.sentences(3, 2, 4), small.sentences(1, 4, 2, seed=1)]
    drawn = [torch.stack([small.selection(v, 0.5, k) for k in range(2)]) for _, v in slots]
    rewards, modes = table(2, 3, 2), table(3, 2, seed=4)
    twice = estimate(
        policy,
        baseline,
        [(tokens[again], valid[again]) for tokens, valid in slots],
        small.rewarded([each[:, again] for each in drawn], rewards[:, again], modes[again]),
        price=(0.7, -0.4),
    )
    weights = torch.tensor([1.5, 0.75, 0.75]).double()
    paid = small.rewarded(drawn, rewards, modes)
    once = estimate(policy, baseline, slots, paid, weights=weights, price=(0.7, -0.4))
    torch.testing.assert_close(once[0], twice[0])
    assert once[1]["policy/loss"] == pytest.approx(twice[1]["policy/loss"])


def test_leave_one_out_over_two_draws_is_unbiased() -> None:
    policy = small.policy()
    rewards, chance = table(4**TOKENS), chances(policy, TOKENS)
    one, two = torch.cartesian_prod(*[torch.arange(4**TOKENS)] * 2).T  # all 65,536 pairs of draws
    weight = chance[one] * chance[two] * len(one)
    drawn = every_selection(TOKENS)[torch.stack([one, two])]  # [2, 4^2n, 2, n]
    paid = small.rewarded([drawn], (weight * rewards[torch.stack([one, two])])[..., None], None)
    result, _ = estimate(policy, "leave-one-out", [sentence(TOKENS, len(one))], paid)
    torch.testing.assert_close(result, exact_gradient(policy, rewards), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("baseline", ["none", "leave-one-out"])
def test_a_reward_for_each_sentence_of_a_pair_introduces_no_bias(baseline: str) -> None:
    policy = small.policy()
    n = 1 if baseline == "leave-one-out" else 2
    size, samples = 4**n, 2 if baseline == "leave-one-out" else 1
    likelihood = table(size, size)  # of the pair: depends on both selections
    cost = SPARSITY * every_selection(n).double().sum((1, 2)) / n
    first, second = (log_probs(policy, n, seed).exp() for seed in (0, 1))
    total = likelihood - cost[:, None] - cost[None, :]
    objective = (first[:, None] * second[None, :] * total).sum()
    wanted = flat(torch.autograd.grad(objective, list(policy.parameters())))
    # Every draw of K selections of both sentences: [K, size^(2K)] for each sentence.
    draws = torch.cartesian_prod(*[torch.arange(size)] * (2 * samples)).T
    a, b = draws[:samples], draws[samples:]
    weight = (first.detach()[a] * second.detach()[b]).prod(0) * draws.shape[1]
    rewards = torch.stack([likelihood[a, b] - cost[a], likelihood[a, b] - cost[b]], -1)
    paid = small.rewarded(
        [every_selection(n)[a], every_selection(n)[b]], weight[None, :, None] * rewards, None
    )
    slots = [sentence(n, draws.shape[1], seed) for seed in (0, 1)]
    result, _ = estimate(policy, baseline, slots, paid)
    torch.testing.assert_close(result, wanted, rtol=1e-8, atol=1e-10)
    assert wanted.abs().max() > 1e-3


def test_the_loss_is_what_the_definition_says() -> None:
    policy = small.policy()
    slots = [small.sentences(3, 2), small.sentences(1, 4, seed=1)]
    drawn = [torch.stack([small.selection(v, 0.5, k) for k in range(2)]) for _, v in slots]
    rewards = table(2, 2, 2)
    _, stats = estimate(policy, "none", slots, small.rewarded(drawn, rewards, None))
    wanted, entropies = 0.0, []
    for s, (tokens, valid) in enumerate(slots):
        evaluated = policy(small.of_vectors(embedding()(tokens).detach(), valid)).evaluate(drawn[s])
        for k, b in itertools.product(range(2), range(2)):
            wanted -= evaluated.log_prob[k, b].sum().item() * rewards[k, b, s].item() / 4
        entropies += evaluated.entropy.tolist()
    assert stats["policy/loss"] == pytest.approx(wanted, rel=1e-6)
    assert stats["policy/entropy"] == pytest.approx(np.mean(entropies), rel=1e-6)
    assert stats["policy/advantage_std"] == pytest.approx(rewards.numpy().std(), rel=1e-6)


def test_entropy_cost_adds_the_gradient_of_the_mean_entropy() -> None:
    policy = small.policy()
    slots = [small.sentences(3, 2), small.sentences(1, 4, seed=1)]
    drawn = [small.selection(v)[None] for _, v in slots]
    paid = small.rewarded(drawn, table(1, 2, 2), None)
    without, _ = estimate(policy, "none", slots, paid)
    result, _ = estimate(policy, "none", slots, paid, entropy_cost=0.7)
    entropy = torch.stack(
        [
            policy(small.of_vectors(embedding()(t).detach(), v)).evaluate(d).entropy.mean()
            for (t, v), d in zip(slots, drawn, strict=True)
        ]
    ).mean()
    added = 0.7 * flat(torch.autograd.grad(entropy, list(policy.parameters())))
    torch.testing.assert_close(result - without, added, rtol=1e-5, atol=1e-9)
    assert added.abs().max() > 1e-3


def test_the_moving_average_is_carried_from_update_to_update() -> None:
    policy = small.policy()
    made = learner(policy, "moving-average")
    tokens, valid = sentence(TOKENS, 2)
    batch = TensorBatch([tokens], [valid], torch.zeros(2, dtype=torch.int64))
    drawn = small.selection(valid)[None]
    for number, (reward, wanted) in enumerate([(1.0, 1.0), (3.0, 1.1), (2.1, 1.15)]):
        paid = small.rewarded([drawn], torch.full((1, 2, 1), reward, dtype=torch.float64), None)
        stats = small.step(made, batch, paid, number)
        assert made.average.tolist() == pytest.approx([wanted])
        assert (stats["policy/loss"] == 0) is (
            number == 0
        )  # the first update subtracts its own mean

"""Policy updates by name, those of others, and what is refused of them."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import pytest
import small
import torch

from rss_rl.components import EVERYTHING, Component
from rss_rl.config import LearnerConfig, OptimizerConfig, RunConfig, parse_config
from rss_rl.errors import ConfigError
from rss_rl.learners.score_function import ScoreFunction
from rss_rl.models.inputs import TensorBatch
from rss_rl.policies.distributions import selection_uniforms

EXAMPLES = Path(__file__).parents[2] / "examples"


def component(build: Any, *capabilities: str) -> Component:
    return Component(
        kind="policy_update",
        name="mine",
        help="A policy update of one's own.",
        build=build,
        capabilities=frozenset(capabilities),
    )


CENTRED = component(lambda setup, options: ScoreFunction(setup), "log_probs", "multiple_selections")
OTHER = component(lambda setup, options: object(), "log_probs")
PAIRED = component(lambda setup, options: ScoreFunction(setup), "log_probs", "antithetic")


def configured(name: str, **sampler: Any) -> RunConfig:
    tree = {
        "data": "some",
        "phases": [{"name": "a", "policy": True, "steps": 1}],
        "learner": {"policy_update": f"{__name__}:{name}"},
        "sampler": sampler,
    }
    return parse_config(tree, where="test", trust=EVERYTHING)


def test_what_it_declares_is_what_it_is() -> None:
    policy, embedding = small.policy(), small.classifier(sentences=1).embedding
    with pytest.raises(ConfigError, match="is not a PolicyUpdate: .*`gradients`"):
        small.policy_update(policy, embedding, name=f"{__name__}:OTHER")


def test_what_it_declares_is_asked_of_the_run() -> None:
    with pytest.raises(ConfigError, match="selections must be >= 2"):
        configured("CENTRED", selections=1)
    with pytest.raises(ConfigError, match="set sampler.max_policy_lag=0"):
        configured("CENTRED", max_policy_lag=1)
    with pytest.raises(ConfigError, match="selections must be even"):
        configured("PAIRED", selections=3)


def test_antithetic_selections_come_from_mirrored_numbers() -> None:
    import numpy as np

    rows, cpu = np.array([3, 9]), torch.device("cpu")
    (plain,) = selection_uniforms(0, 5, rows, [4], 3, cpu)
    (paired,) = selection_uniforms(0, 5, rows, [4], 6, cpu, antithetic=True)
    torch.testing.assert_close(paired[:3], plain, rtol=0, atol=0)
    torch.testing.assert_close(paired[3:], 1 - plain, rtol=0, atol=0)


def pairs_of_bits(chance: float) -> list[tuple[bool, bool, float]]:
    """A bit, its antithetic twin, and how likely the two are together."""
    both = (chance > 0.5, chance > 0.5, abs(1 - 2 * chance))
    apart = min(chance, 1 - chance)
    return [both, (True, False, apart), (False, True, apart)]


def test_the_example_disarm_is_unbiased(monkeypatch: pytest.MonkeyPatch) -> None:
    """By enumeration of every pair of selections, against the gradient of the expected reward."""
    monkeypatch.syspath_prepend(EXAMPLES)
    policy, embedding = small.policy(), small.classifier(sentences=1).embedding
    tokens, valid = small.sentences(2, seed=4)
    found = policy(small.of_vectors(embedding(tokens).detach(), valid))
    chances = found.probs.flatten().tolist()
    paid_for = torch.linspace(-1, 2, 16, dtype=torch.float64) ** 3  # of each of 2^4 selections
    powers = torch.tensor([8, 4, 2, 1])
    wanted = torch.zeros((), dtype=torch.float64)
    for bits in itertools.product([False, True], repeat=4):
        chosen = torch.tensor(bits).reshape(1, 1, 2, 2)
        likely = found.evaluate(chosen).log_prob.sum().exp()
        wanted = wanted + likely * paid_for[int((chosen.flatten().long() * powers).sum())]
    exact = torch.autograd.grad(wanted, list(policy.parameters()))
    every = list(itertools.product(*map(pairs_of_bits, chances)))
    drawn = torch.tensor([[[bit[side] for bit in pair] for pair in every] for side in (0, 1)])
    weight = torch.tensor([[bit[2] for bit in pair] for pair in every], dtype=torch.float64)
    rewards = paid_for[(drawn.long() * powers).sum(-1)] * weight.prod(-1) * len(every)
    learner = small.policy_update(
        policy,
        embedding,
        LearnerConfig(policy=OptimizerConfig(clip_norm=None)),
        name="rss_rl_examples.disarm:DISARM",
    )
    batch = TensorBatch(
        [tokens.expand(len(every), -1)], [valid.expand(len(every), -1)], torch.zeros(len(every))
    )
    selections = [drawn.reshape(2, len(every), 2, 2)]
    small.gradients(learner, batch, small.rewarded(selections, rewards[..., None]))
    for parameter, slope in zip(policy.parameters(), exact, strict=True):
        torch.testing.assert_close(-parameter.grad, slope, rtol=1e-8, atol=1e-10)
    assert max(float(slope.abs().max()) for slope in exact) > 1e-3
    sys.modules.pop("rss_rl_examples.disarm")

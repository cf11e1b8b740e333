"""The pathwise learner: its gradient, and who gets it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import small
import torch

from rss_rl.config import parse_config
from rss_rl.learners.pathwise import Pathwise
from rss_rl.learners.updates import UpdateSetup
from rss_rl.models.inputs import TensorBatch
from rss_rl.policies.build import build_policy
from rss_rl.reward_models.reward_model import RewardSetup
from rss_rl.types import LabelSpec

ENTROPY_COST, COMPLEMENT = 0.3, 0.7
TREE: dict[str, Any] = {
    "data": "none",
    "reward": {"sparsity_cost": 0.2, "coherence_cost": 0.1},
    "phases": [{"name": "frozen", "policy": True, "steps": 3}],
}


def setting(
    complement: float = 0.0, **policy: Any
) -> tuple[Pathwise, Any, Any, TensorBatch, list[torch.Tensor]]:
    """A learner of plain gradient steps of size 1 and its models, in float64."""
    step = {"name": "sgd", "learning_rate": 1.0, "clip_norm": None}
    tree = TREE | {"learner": {"policy": step, "entropy_cost": ENTROPY_COST}}
    likelihood = {"name": "likelihood", "options": {"complement": complement}}
    tree["reward"] = TREE["reward"] | {"model": likelihood}
    given = {"name": "hardkuma"} | policy
    tree["policy"] = small.policy_config(**given).model_dump(mode="json")
    config = parse_config(tree, where="test")
    classifier = small.classifier(sentences=1)
    module = build_policy(config.policy, small.EMBEDDING, "elu")
    small.randomise(module)
    module.double()
    tokens, valid = small.sentences(5, 2, 3)
    batch = TensorBatch([tokens], [valid], torch.tensor([0, 1, 2]))
    drawn = [torch.from_numpy(np.random.default_rng(2).uniform(0.01, 0.99, (2, 3, 2, 5)))]
    rewarding = RewardSetup(LabelSpec("classes", ("a", "b", "c")), 1, classifier)
    setup = UpdateSetup(
        module,
        config.learner,
        config.reward,
        uniforms=lambda batch, number: drawn,
        gated=lambda: config.reward.model.build(rewarding),
    )
    learner: Any = Pathwise(setup)
    learner.embedding = classifier.embedding
    return learner, module, classifier, batch, drawn


def objective(
    module: Any,
    classifier: Any,
    batch: TensorBatch,
    drawn: list[torch.Tensor],
    complement: float = 0.0,
    charged: tuple[float, float] = (0.0, 0.0),
) -> tuple[float, float]:
    """Loss and costs, and the entropy, written out for one example and one draw at a time."""
    total = entropy = 0.0
    with torch.no_grad():
        valid, (inputs,) = batch.valid[0], small.policy_inputs(classifier.embedding, batch)
        found = module(inputs)
        gates, chance = found.rsample(drawn[0]), found.probs
        for example, label in enumerate(batch.labels.tolist()):
            n = int(valid[example].sum())
            for k in range(2):
                chosen = gates[k, example : example + 1]
                rest = (1 - chosen) * valid[example]
                for read in (chosen, rest):
                    logits = classifier(
                        [batch.tokens[0][example : example + 1]],
                        [valid[example : example + 1]],
                        [read],
                    )
                    known = float(logits.log_softmax(-1)[0, label])
                    total += complement * math.exp(known) / 2 if read is rest else -known / 2
            p = chance[example, :, :n]
            total += 0.2 * float(p.sum()) / n
            total += sum(c * float(role.sum()) for c, role in zip(charged, p, strict=True)) / n
            turns = p[:, :-1] * (1 - p[:, 1:]) + (1 - p[:, :-1]) * p[:, 1:]
            total += 0.1 * float(turns.sum()) / n
            entropy -= float((p * p.log() + (1 - p) * (1 - p).log()).mean())
    return total / len(batch.labels), entropy / len(batch.labels)


@pytest.mark.parametrize(
    ("complement", "charged"), [(0.0, None), (COMPLEMENT, None), (COMPLEMENT, (0.9, -0.4))]
)
def test_a_step_follows_the_slope_of_the_objective(
    complement: float, charged: tuple[float, float] | None
) -> None:
    learner, module, classifier, batch, drawn = setting(complement)
    before = {k: v.clone() for k, v in module.state_dict().items()}
    value, entropy = objective(module, classifier, batch, drawn, complement)
    scalars = small.step(learner, batch, None, price=charged)
    assert scalars["policy/loss"] == pytest.approx(value, abs=1e-9)  # a constraint is no cost
    assert ("reward/complement" in scalars) == bool(complement)
    assert scalars["policy/entropy"] == pytest.approx(entropy, abs=1e-9)
    after = {k: v.clone() for k, v in module.state_dict().items()}
    for name in ("modules_by_role.0.score.bias", "modules_by_role.3.hidden.bias"):
        slope = (before[name] - after[name]).flatten()
        around = []
        for side in (1e-6, -1e-6):
            module.load_state_dict(before)
            module.state_dict()[name].flatten()[0] += side
            value, entropy = objective(
                module, classifier, batch, drawn, complement, charged or (0.0, 0.0)
            )
            around.append(value - ENTROPY_COST * entropy)
        assert float(slope[0]) == pytest.approx((around[0] - around[1]) / 2e-6, rel=1e-4, abs=1e-8)
        assert abs(float(slope[0])) > 1e-6


def test_the_classifier_gets_no_gradient_and_keeps_its_mode() -> None:
    learner, _, classifier, batch, _ = setting()
    classifier.train()
    before = {k: v.clone() for k, v in classifier.state_dict().items()}
    small.step(learner, batch, None)
    assert classifier.training
    assert all(p.grad is None for p in classifier.parameters())
    assert all(torch.equal(v, before[k]) for k, v in classifier.state_dict().items())


def test_an_example_of_weight_two_counts_as_if_it_came_twice() -> None:
    steps = []
    for weighed in (True, False):
        learner, module, _, batch, drawn = setting(COMPLEMENT)
        before = torch.cat([p.flatten() for p in module.parameters()]).clone()
        learner._entropy_cost = 0.0  # which is of the policy, not of the examples
        if weighed:
            batch = batch._replace(weights=torch.tensor([1.5, 0.75, 0.75]).double())
        else:
            again = [0, 0, 1, 2]
            batch = TensorBatch(
                [batch.tokens[0][again]], [batch.valid[0][again]], batch.labels[again]
            )
            drawn[0] = drawn[0][:, again]
        scalars = small.step(learner, batch, None, price=(0.9, -0.4))
        after = torch.cat([p.flatten() for p in module.parameters()])
        steps.append((before - after, scalars["policy/loss"], scalars["reward/complement"]))
    torch.testing.assert_close(steps[0], steps[1])
    assert steps[0][0].abs().max() > 1e-3

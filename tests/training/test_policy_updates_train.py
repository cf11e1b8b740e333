"""Whole runs by every policy update: who learns, what repeats, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from trainers import saved_by, trainer_of

from rss_rl.components import EVERYTHING, Component
from rss_rl.config import RunConfig, parse_config
from rss_rl.data.store import Prepared
from rss_rl.errors import ConfigError
from rss_rl.policies.distributions import Certain, Gates
from rss_rl.policies.policy import PolicyInputs
from rss_rl.reading.models import build_prepared_models
from rss_rl.reward_models.likelihood import ClassifierReward
from rss_rl.rollouts.rollout import Job
from rss_rl.rollouts.sampler import Sampler
from rss_rl.rollouts.snapshot import Publisher
from rss_rl.training.learner import LocalLearner
from rss_rl.training.trainer import Trainer
from rss_rl.types import Array, Batch

WAYS: dict[str, dict[str, Any]] = {
    "reinforce shared": {"policy": {"options": {"shared": True}}},
    "reinforce of the example": {"policy": {"reads": "example"}},
    "ppo-clip": {"learner": {"policy_update": "ppo-clip"}, "sampler": {"max_policy_lag": 1}},
    "gumbel": {"policy": {"name": "gumbel", "options": {"temperature": 0.7}}},
    "hardkuma": {"policy": {"name": "hardkuma"}, "reward": {"coherence_cost": 0.1}},
    "hardkuma by rewards": {
        "policy": {"name": "hardkuma"},
        "learner": {"policy_update": "reinforce"},
    },
    "gumbel of the example": {"policy": {"name": "gumbel", "reads": "example"}},
    "top-k": {"policy": {"name": "top-k", "options": {"shared": True, "share": 0.5}}},
}


def with_settings(config: RunConfig, settings: dict[str, Any], **top: Any) -> RunConfig:
    tree = config.model_dump(mode="json") | top
    for section, values in settings.items():
        kept = {} if section == "policy" else tree[section]  # options are those of one policy
        tree[section] = {**kept, **values}
    return parse_config(tree, where="test", trust=EVERYTHING)


def arrays_of(trainer: Trainer) -> dict[str, Any]:
    return {k: v.detach().numpy().copy() for k, v in trainer.learner.tensors().items()}


@pytest.mark.parametrize("settings", WAYS.values(), ids=WAYS)
def test_each_phase_teaches_whom_it_names(
    tiny_config: RunConfig, tiny: Prepared, settings: dict[str, Any]
) -> None:
    config = with_settings(tiny_config, settings)
    config = config.model_copy(update={"phases": tiny_config.phases[1:]})
    trainer = trainer_of(config, tiny)
    before = arrays_of(trainer)
    scalars = trainer.update().scalars  # frozen: only the policy
    frozen = arrays_of(trainer)
    for name, value in frozen.items():
        if name.startswith("classifier/"):
            assert np.array_equal(value, before[name]), name
    policy = [name for name in before if name.startswith("policy/")]
    moved = [name for name in policy if not np.array_equal(frozen[name], before[name])]
    assert len(moved) == len(policy), set(policy) - set(moved)
    assert np.isfinite(scalars["reward/total"])
    assert 0 < scalars["selection/kept"] <= 1
    costs = scalars["reward/sparsity_cost"] + scalars.get("reward/coherence_cost", 0.0)
    total = scalars["reward/log_likelihood"] - costs
    assert scalars["reward/total"] == pytest.approx(total, abs=1e-5)
    assert ("time/sample_s" in scalars) == (not config.policy_update.can("gates"))
    trainer.schedule.advance()
    trainer.update()  # co-train
    words = "classifier/embedding.trainable"
    assert not np.array_equal(arrays_of(trainer)[words], before[words])


@pytest.mark.parametrize("name", ["hardkuma", "reinforce shared", "reinforce of the example"])
def test_a_run_that_was_resumed_goes_on_the_same(
    tiny_config: RunConfig, tiny: Prepared, name: str
) -> None:
    config = with_settings(tiny_config, WAYS[name])
    config = config.model_copy(update={"phases": tiny_config.phases[2:]})
    whole = trainer_of(config, tiny)
    whole.update(), whole.update()
    saved = saved_by(whole)
    again = trainer_of(config, tiny, resume=saved)
    assert whole.update().scalars["policy/loss"] == again.update().scalars["policy/loss"]
    ended = arrays_of(again)
    for key, value in arrays_of(whole).items():
        assert np.array_equal(value, ended[key], equal_nan=True), key


@pytest.mark.parametrize("name", ["reinforce shared", "reinforce of the example"])
def test_a_rollout_does_not_depend_on_who_samples_it_or_with_whom(
    tiny_config: RunConfig, tiny: Prepared, name: str
) -> None:
    config = with_settings(tiny_config, WAYS[name])
    samplers = []
    for _ in range(2):
        models = build_prepared_models(config, tiny)
        samplers.append(Sampler(config, models, tiny.split("train")))
        samplers[-1].load(Publisher(models).publish(0))
    k = config.sampler.selections

    def job(rows: list[int]) -> Job:
        return Job(3, 0, np.array(rows), k, scored=True, thresholded=False)

    samplers[1].sample(job([9, 4]))
    together = samplers[0].sample(job([1, 2, 3]))
    assert together.log_prob.shape[:2] == (k, 3)
    alone = samplers[1].sample(job([2]))
    for mine, other in zip(together.selections, alone.selections, strict=True):
        assert np.array_equal(mine[:, 1:2, :, : other.shape[-1]], other)
    rewards = together.terms.by_sentence[:, 1:2]
    np.testing.assert_allclose(rewards, alone.terms.by_sentence, atol=1e-5)


class Open(Gates):
    """Gates that are all 1."""

    def __init__(self, valid: Tensor) -> None:
        self._selection = valid[:, None].expand(-1, 2, -1)

    @property
    def probs(self) -> Tensor:
        return self._selection.float()

    def rsample(self, uniforms: Tensor) -> Tensor:
        return self.probs.expand(uniforms.shape)


class Fixed(torch.nn.Module):
    """Has gates, and no parameters."""

    def forward(self, inputs: PolicyInputs) -> Open:
        return Open(inputs.valid)


class Sure(torch.nn.Module):
    """Has parameters, and nothing to learn them by."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.score = torch.nn.Linear(features, 1)

    def forward(self, inputs: PolicyInputs) -> Certain:
        kept = self.score(inputs.features).squeeze(-1) > 0
        return Certain(kept[:, None].expand(-1, 2, -1), inputs.valid)


FIXED = Component(
    kind="policy",
    name="fixed",
    help="Everything, through gates.",
    build=lambda setup, options: Fixed(),
    capabilities=frozenset({"gates", "learns"}),
)
CERTAIN = Component(
    kind="policy",
    name="certain",
    help="What a fixed score keeps.",
    build=lambda setup, options: Sure(setup.features),
    capabilities=frozenset({"learns", "log_probs"}),
)


class Margin(ClassifierReward):
    """A score of its own, of which no gradient is known."""

    def score(self, batch: Batch, selections: Sequence[Array]) -> dict[str, Array]:
        return {name: each.clip(-1) for name, each in super().score(batch, selections).items()}


MARGIN = Component(
    kind="reward_model",
    name="margin",
    help="Clipped.",
    build=lambda setup, options: Margin(setup.classifier, setup.device),
    capabilities=frozenset({"classifier", "gates"}),
)

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no gates": (
        {"learner": {"policy_update": "pathwise"}, "policy": {"name": "iterative"}},
        "gates",
    ),
    "threads": ({"learner": {"threads": 1000}}, "1000 threads on"),
    "no weights": ({"model": {"encoder": "bilstm"}, "policy": {"name": "gumbel"}}, "weigh"),
    "no log-prob": (
        {"learner": {"policy_update": "reinforce"}}
        | {"policy": {"name": "top-k", "options": {"share": 0.4}}},
        "needs a policy with log_probs",
    ),
    "another score": (
        {"learner": {"policy_update": "pathwise"}, "policy": {"name": "gumbel"}}
        | {"reward": {"model": f"{__name__}:MARGIN"}},
        "no `gated_scores`",
    ),
    "no parameters": (
        {"policy": {"name": f"{__name__}:FIXED"}, "learner": {"policy_update": "pathwise"}},
        "nothing to learn",
    ),
    "certain": ({"policy": {"name": f"{__name__}:CERTAIN"}}, "only returns the tokens it keeps"),
}


@pytest.mark.parametrize(("settings", "message"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused(
    tiny_config: RunConfig, tiny: Prepared, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        LocalLearner(with_settings(tiny_config, settings), tiny)
